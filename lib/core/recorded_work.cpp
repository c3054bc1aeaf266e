#include "core/recorded_work.h"

#include <utility>

#ifdef LYCEUM_CUDA
#include "core/allocator.h"
#include "core/cuda_graph.h"
#endif

namespace lyceum {

void RecordedWork::run(const std::function<void()>& work) {
#ifdef LYCEUM_CUDA
  const auto* cuda = std::get_if<CudaStream>(&stream_);
  if (cuda && record_ && !cuda->profile() && std::exchange(ready_, true)) {
    if (!graph_) {
      // The graph keeps the blocks that it allocates. Without pooled blocks they have exactly the sizes that it needs.
      cuda->memory().trim();
      graph_ = std::make_shared<const CudaGraph>(*cuda, work);
    }
    return graph_->launch();
  }
#endif
  forget();
  work();
}

void RecordedWork::forget() { graph_.reset(); }

}  // namespace lyceum
