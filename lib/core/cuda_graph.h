#pragma once

#include <functional>
#include <memory>

#include "core/allocator.h"
#include "core/cuda_stream.h"

struct CUgraphExec_st;

namespace lyceum {

/// Launches and copies of one stream, recorded once, launched at once as often as wanted (CUDA graphs). The memory that
/// they allocate stays theirs as long as this lives.
class CudaGraph {
 public:
  /// Records what `work` gives the stream, which does nothing of it yet. Throws what `work` throws, a wait for the
  /// stream included; the stream can be used on then.
  CudaGraph(const CudaStream& stream, const std::function<void()>& work);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  /// Behind the other work of the stream.
  void launch() const;

 private:
  CudaStream stream_;
  std::shared_ptr<Allocator::Reserve> memory_;
  CUgraphExec_st* executable_ = nullptr;
};

}  // namespace lyceum
