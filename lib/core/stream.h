#pragma once

#include <memory>
#include <typeinfo>
#include <variant>

#include "core/profile_scope.h"
#ifdef LYCEUM_CUDA
#include "core/cuda_stream.h"
#endif

namespace lyceum {

class Allocator;

/// Runs kernels on the host. It has a thread count, the allocator of results, and the state that kernels keep between
/// calls (compiled primitives). A cheap handle: copies share one state. Only one host thread may use a stream at a
/// time.
class CpuStream {
 public:
  /// `threads`: the number of OpenMP threads of this rank, 0 for all cores that the process may use. It also becomes
  /// the calling thread's number of threads for other OpenMP code (omp_set_num_threads). `memory`: null for a new
  /// allocator. Throws an Error if `threads` is negative.
  explicit CpuStream(int threads = 0, std::shared_ptr<Allocator> memory = nullptr);

  int threads() const;
  /// Returns the allocator of results.
  Allocator& memory() const;
  /// Records the time of every launch in `profile` from now on; null to stop.
  void set_profile(std::shared_ptr<Profile> profile) const;
  Profile* profile() const;

  /// Returns the state of type T that a family of kernels keeps between calls. It is created at first use and lives as
  /// long as the stream.
  template <class T>
  T& keep() const {
    std::shared_ptr<void>& slot = kernel_state(typeid(T));
    if (!slot) slot = std::make_shared<T>();
    return *static_cast<T*>(slot.get());
  }

 private:
  struct State;
  std::shared_ptr<void>& kernel_state(const std::type_info& type) const;

  std::shared_ptr<State> state_;
};

/// A stream that computes nothing: launches return at once, and large blocks of memory are addresses without contents
/// (Allocator::create_untouched()). Code that runs on it makes the same calls, with the same sizes and the same
/// messages between ranks, as on a device.
class RehearsalStream {
 public:
  RehearsalStream();

  Allocator& memory() const { return *memory_; }
  Profile* profile() const { return nullptr; }

 private:
  std::shared_ptr<Allocator> memory_;
};

template <class Description>
void run(const RehearsalStream&, const Description&) {}

/// A stream on a GPU (core/cuda_stream.h); defined only in a build with CUDA.
class CudaStream;

/// A stream of any device that this build supports.
#ifdef LYCEUM_CUDA
using Stream = std::variant<CpuStream, RehearsalStream, CudaStream>;
#else
using Stream = std::variant<CpuStream, RehearsalStream>;
#endif

/// Returns the allocator of the stream's results.
Allocator& memory_of(const Stream& stream);
/// Returns the stream's profile; null if none is set.
Profile* profile_of(const Stream& stream);
/// True if launches return before their work is done, so the host must wait before it reads results.
bool asynchronous(const Stream& stream);

/// Runs a kernel description on the stream's device: `launch(stream, RmsNormForward{.x = …})`.
template <class Description>
void launch(const Stream& stream, const Description& description) {
  const ProfileScope timed(profile_of(stream), typeid(Description));
  if (const auto* cpu = std::get_if<CpuStream>(&stream)) run(*cpu, description);
  if (const auto* rehearsal = std::get_if<RehearsalStream>(&stream)) run(*rehearsal, description);
#ifdef LYCEUM_CUDA
  if (const auto* cuda = std::get_if<CudaStream>(&stream)) run(*cuda, description);
#endif
}

}  // namespace lyceum
