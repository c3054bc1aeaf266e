#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/allocator.h"
#include "core/clock.h"
#include "core/cuda/profile_clock.h"
#include "core/cuda_check.h"
#include "core/cuda_fault.h"
#include "core/cuda_stream.h"
#include "core/kernel_state.h"
#include "core/polling.h"
#include "core/profile.h"

namespace lyceum {

namespace {

class DeviceSource : public MemorySource {
 public:
  DeviceSource(int device, cudaStream_t stream, std::function<void()> settle)
      : device_(device),
        stream_(stream),
        settle_(std::move(settle)),
        name_("memory on GPU " + std::to_string(device)) {}

  std::byte* take(std::size_t bytes) override {
    check(cudaSetDevice(device_), "cudaSetDevice");
    void* block = nullptr;
    const cudaError_t state = cudaMalloc(&block, bytes);
    if (state == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears it
      return nullptr;
    }
    check(state, "cudaMalloc");
    return static_cast<std::byte*>(block);
  }
  void settle() override { settle_(); }
  // cudaFree() waits for all work of the device, also for that which waits for other ranks, and cannot be interrupted.
  // At the end of the process the driver may have been unloaded and have freed the memory already, so its result is
  // ignored.
  void give_back(std::byte* block, std::size_t) override { cudaFree(block); }
  void clear(std::byte* block, std::size_t bytes) override {
    if (bytes) check(cudaMemsetAsync(block, 0, bytes, stream_), "cudaMemsetAsync");
  }
  std::string_view name() const override { return name_; }

 private:
  int device_;
  cudaStream_t stream_;
  std::function<void()> settle_;
  std::string name_;
};

}  // namespace

struct CudaStream::State {
  int device = 0, processors = 0;
  CUstream_st* handle = nullptr;
  std::shared_ptr<Allocator> memory;
  std::shared_ptr<Profile> profile;
  std::shared_ptr<std::byte> fault;
  std::shared_ptr<DeviceFault> seen;  // pinned, so that the copy is asynchronous
  std::vector<WaitObserver*> observers;
  KernelState kernel_state;
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();
  void wait_until(const std::function<bool()>& reached) const;
  /// Waits until no work of the device waits for other ranks.
  void settle() const;
};

int CudaStream::device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

CudaStream::CudaStream(int device, std::size_t limit) : state_(std::make_shared<State>()) {
  const int devices = device_count();
  require(device >= 0 && device < devices, "GPU {} does not exist: this process sees {}; set run.device = cpu", device,
          devices);
  state_->device = device;
  check(cudaSetDevice(device), "cudaSetDevice");
  check(cudaDeviceGetAttribute(&state_->processors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  check(cudaStreamCreateWithFlags(&state_->handle, cudaStreamNonBlocking), "cudaStreamCreate");
  const auto settle = [stream = std::weak_ptr(state_)] {
    if (const auto state = stream.lock()) state->settle();
  };
  state_->memory = Allocator::create(std::make_unique<DeviceSource>(device, state_->handle, settle), limit);
  state_->fault = state_->memory->allocate_zeros(sizeof(DeviceFault), MemoryKind::buffers);
  void* seen = nullptr;
  check(cudaHostAlloc(&seen, sizeof(DeviceFault), cudaHostAllocDefault), "cudaHostAlloc");
  state_->seen = {static_cast<DeviceFault*>(seen), [](DeviceFault* memory) { cudaFreeHost(memory); }};
}

CudaStream::State::~State() {
  kernel_state.clear();
  if (handle) cudaStreamSynchronize(handle);  // blocks return to the system with the allocator, so work must be done
  fault.reset();
  if (handle) cudaStreamDestroy(handle);
}

void CudaStream::set_profile(std::shared_ptr<Profile> profile) const {
  if (state_->profile) state_->profile->set_clock(nullptr);
  if (profile) {
    // The profile may outlive the stream. All work is done by then, so there is nothing to wait for.
    const auto wait = [stream = std::weak_ptr(state_)](const std::function<bool()>& reached) {
      if (const auto state = stream.lock()) state->wait_until(reached);
    };
    profile->set_clock(make_cuda_clock(state_->handle, wait));
  }
  state_->profile = std::move(profile);
}

CUstream_st* CudaStream::handle() const { return state_->handle; }
int CudaStream::device() const { return state_->device; }
int CudaStream::processors() const { return state_->processors; }
Allocator& CudaStream::memory() const { return *state_->memory; }
Profile* CudaStream::profile() const { return state_->profile.get(); }
std::shared_ptr<void>& CudaStream::kernel_state(const std::type_info& type) const { return state_->kernel_state[type]; }
void CudaStream::wait_until(const std::function<bool()>& reached) const { state_->wait_until(reached); }
void CudaStream::add_observer(WaitObserver& observer) const { state_->observers.push_back(&observer); }
void CudaStream::remove_observer(WaitObserver& observer) const { std::erase(state_->observers, &observer); }

DeviceFault* CudaStream::fault() const { return reinterpret_cast<DeviceFault*>(state_->fault.get()); }

bool CudaStream::recording() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(handle(), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void CudaStream::State::wait_until(const std::function<bool()>& reached) const {
  const Clock::time_point begin = Clock::now();
  bool notified = false;
  for (; !reached(); notified = true) {
    const double waited = seconds_since(begin);
    for (WaitObserver* observer : observers) observer->waiting(waited);
    pause_polling(waited);
  }
  if (!notified) return;
  for (WaitObserver* observer : observers) observer->over();
}

void CudaStream::State::settle() const {
  wait_until(
      [this] { return std::ranges::all_of(observers, [](WaitObserver* observer) { return observer->settled(); }); });
}

void CudaStream::synchronise() const {
  require(!recording(), "work that is recorded as a CUDA graph cannot wait for GPU {}", device());
  DeviceFault& seen = *state_->seen;
  check(cudaMemcpyAsync(&seen, fault(), sizeof seen, cudaMemcpyDeviceToHost, handle()),
        "reading the error record of the device");
  wait_until([&] {
    const cudaError_t state = cudaStreamQuery(handle());
    if (state == cudaErrorNotReady) return false;
    check(state, "waiting for the device");
    return true;
  });
  if (!seen.raised) return;
  check(cudaMemsetAsync(fault(), 0, sizeof seen, handle()), "cudaMemsetAsync");
  fail(ExitCode::failed, "{}: {} contains {}, outside of [{}, {}), on GPU {}", seen.kernel, seen.name, seen.value,
       seen.first, seen.bound, device());
}

}  // namespace lyceum
