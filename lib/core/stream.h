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

/// Where kernels run on the host: a thread count, the memory that results come from, and what kernels keep between
/// calls (compiled primitives). A cheap handle: copies share one state. One host thread uses a stream at a time.
class CpuStream {
 public:
  /// `threads`: OpenMP threads of this rank, 0 for all that the process may use. `memory`: none for a separate one.
  explicit CpuStream(int threads = 0, std::shared_ptr<Allocator> memory = nullptr);

  int threads() const;
  Allocator& memory() const;
  /// Times every launch from now on; null for none.
  void set_profile(std::shared_ptr<Profile> profile) const;
  Profile* profile() const;

  /// What kernels of one family keep between calls, made at first use and living as long as the stream.
  template <class T>
  T& keep() const {
    std::shared_ptr<void>& slot = kept(typeid(T));
    if (!slot) slot = std::make_shared<T>();
    return *static_cast<T*>(slot.get());
  }

 private:
  struct State;
  std::shared_ptr<void>& kept(const std::type_info& type) const;

  std::shared_ptr<State> state_;
};

/// Where nothing is computed: launches return at once, and memory is address space that nobody fills. Code that runs on
/// it goes through its motions, with the sizes and the messages between ranks that it would have on a device.
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

/// A GPU's; only a build with CUDA defines it.
class CudaStream;

/// Any device's stream. A build without CUDA has only the host's.
#ifdef LYCEUM_CUDA
using Stream = std::variant<CpuStream, RehearsalStream, CudaStream>;
#else
using Stream = std::variant<CpuStream, RehearsalStream>;
#endif

Allocator& memory_of(const Stream& stream);
Profile* profile_of(const Stream& stream);
/// Whether launches return before their work is done: the host then waits where it wants to read results.
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
