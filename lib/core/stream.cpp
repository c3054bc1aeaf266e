#include "core/stream.h"

#include <omp.h>

#include "core/allocator.h"
#include "core/error.h"
#include "core/kernel_state.h"
#include "core/profile.h"

namespace lyceum {

struct CpuStream::State {
  int threads;
  std::shared_ptr<Allocator> memory;
  std::shared_ptr<Profile> profile;
  KernelState kernel_state;
};

CpuStream::CpuStream(int threads, std::shared_ptr<Allocator> memory)
    : state_(std::make_shared<State>(State{.threads = threads > 0 ? threads : omp_get_num_procs(),
                                           .memory = memory ? std::move(memory) : Allocator::create(),
                                           .profile = nullptr,
                                           .kernel_state = {}})) {
  require(threads >= 0, "a stream with {} threads: set a positive number, or 0 for all cores", threads);
  omp_set_num_threads(state_->threads);
}

int CpuStream::threads() const { return state_->threads; }
Allocator& CpuStream::memory() const { return *state_->memory; }
void CpuStream::set_profile(std::shared_ptr<Profile> profile) const { state_->profile = std::move(profile); }
Profile* CpuStream::profile() const { return state_->profile.get(); }
std::shared_ptr<void>& CpuStream::kernel_state(const std::type_info& type) const { return state_->kernel_state[type]; }

RehearsalStream::RehearsalStream() : memory_(Allocator::create_untouched()) {}

Allocator& memory_of(const Stream& stream) {
  return std::visit([](const auto& device) -> Allocator& { return device.memory(); }, stream);
}

Profile* profile_of(const Stream& stream) {
  return std::visit([](const auto& device) -> Profile* { return device.profile(); }, stream);
}

bool asynchronous([[maybe_unused]] const Stream& stream) {
#ifdef LYCEUM_CUDA
  return std::holds_alternative<CudaStream>(stream);
#else
  return false;
#endif
}

}  // namespace lyceum
