#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "core/stream.h"

namespace lyceum {

class CudaGraph;

/// Work that a stream executes repeatedly, such as a training step. On a GPU, each run after the first is one launch of
/// a CUDA graph:
/// 1. The first run executes the work, which chooses algorithms and creates workspaces.
/// 2. The second run records the work as a CUDA graph and launches it.
/// 3. Every later run launches the graph, on the same memory.
///
/// The work must be the same in every run, except for the contents of device memory:
/// - Memory that it reads or writes but does not allocate must outlive this object and keep its address.
/// - It must not change state of the host, since host code is skipped in later runs.
/// - It must not wait for the device.
class RecordedWork {
 public:
  /// `record`: if false, every run executes the work and nothing is recorded. The same holds on a CPU. While the stream
  /// has a profile, runs execute the work too and discard the graph.
  RecordedWork(Stream stream, bool record) : stream_(std::move(stream)), record_(record) {}
  RecordedWork(const RecordedWork&) = delete;
  RecordedWork& operator=(const RecordedWork&) = delete;

  /// Executes `work` or launches its record. Pass the same work each time.
  void run(const std::function<void()>& work);
  /// Discards the graph and releases its memory. The next run records again, which takes about as long as the work's
  /// launches.
  void forget();
  /// True once run() launches the recorded graph.
  bool recorded() const { return graph_ != nullptr; }

 private:
  Stream stream_;
  bool record_, ready_ = false;
  std::shared_ptr<const CudaGraph> graph_;
};

}  // namespace lyceum
