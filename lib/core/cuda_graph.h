#pragma once

#include <functional>
#include <memory>

#include "core/allocator.h"
#include "core/cuda_stream.h"

struct CUgraphExec_st;

namespace lyceum {

/// A CUDA graph: launches and copies of one stream, recorded once and replayed by one launch. It owns the memory that
/// the recorded work allocates.
class CudaGraph {
 public:
  /// Records the launches and copies of `work` without executing them. Rethrows what `work` throws. Throws an Error if
  /// `work` waits for the stream, since CUDA cannot record a wait. The stream remains usable in either case.
  CudaGraph(const CudaStream& stream, const std::function<void()>& work);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  /// Replays the recorded work, after all earlier work of the stream.
  void launch() const;

 private:
  CudaStream stream_;
  std::shared_ptr<Allocator::Reserve> memory_;
  CUgraphExec_st* executable_ = nullptr;
};

}  // namespace lyceum
