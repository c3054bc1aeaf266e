#include "core/stream.h"

#include <omp.h>

#include "core/error.h"

namespace lyceum {

CpuStream::CpuStream(int threads, std::shared_ptr<Allocator> memory)
    : state_(
          std::make_shared<State>(State{threads > 0 ? threads : omp_get_num_procs(), std::move(memory), nullptr, {}})) {
  require(threads >= 0, "a stream of {} threads: give a positive number, or 0 for all", threads);
  omp_set_num_threads(state_->threads);
}

Allocator& memory_of(const Stream& stream) {
  return std::visit([](const auto& device) -> Allocator& { return device.memory(); }, stream);
}

Profile* profile_of(const Stream& stream) {
  return std::visit([](const auto& device) { return device.profile(); }, stream);
}

bool asynchronous([[maybe_unused]] const Stream& stream) {
#ifdef LYCEUM_CUDA
  return std::holds_alternative<CudaStream>(stream);
#else
  return false;
#endif
}

}  // namespace lyceum
