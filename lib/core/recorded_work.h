#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "core/stream.h"

namespace lyceum {

class CudaGraph;

/// Work that a stream does again and again. Where the stream is a GPU's, the second run is recorded as a CUDA graph and
/// every later one is a single launch of that, on the same memory.
///
/// So the work must be the same every time except for what is in device memory: what it reads and does not make must
/// outlive this and stay in its place, what it writes for others likewise, and it must leave the host as it found it,
/// since later runs do not come by there. It may not wait for the device. Everything is made sure of in the first run:
/// algorithms are chosen, workspaces are there.
class RecordedWork {
 public:
  /// `record`: false runs the work itself every time, as a stream of a CPU does, or one whose launches are timed, which
  /// forgets the record.
  RecordedWork(Stream stream, bool record) : stream_(std::move(stream)), record_(record) {}
  RecordedWork(const RecordedWork&) = delete;
  RecordedWork& operator=(const RecordedWork&) = delete;

  void run(const std::function<void()>& work);
  /// Gives the memory of the record back to others; the next run records anew, which costs about what its launches do.
  void forget();
  /// Whether runs are launches of the record by now.
  bool recorded() const { return graph_ != nullptr; }

 private:
  Stream stream_;
  bool record_, ready_ = false;
  std::shared_ptr<const CudaGraph> graph_;
};

}  // namespace lyceum
