#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <typeinfo>

struct CUstream_st;  // cudaStream_t points to it

namespace lyceum {

class Allocator;
class Profile;
class WaitObserver;
struct DeviceFault;

/// A queue of work on a GPU, with the device memory for results and the state that kernels keep between calls (handles,
/// workspaces, chosen algorithms). A cheap handle: copies share one state. Only one host thread may use a stream at a
/// time. Launches return before the work is done.
class CudaStream {
 public:
  /// Creates a stream on GPU `device`, which becomes the calling thread's current device. `limit`: the most bytes that
  /// its allocator may hold, 0 for no limit. Throws an Error if there is no such GPU.
  explicit CudaStream(int device = 0, std::size_t limit = 0);
  /// Returns the number of GPUs that this process sees; 0 without a driver.
  static int device_count();

  CUstream_st* handle() const;
  int device() const;
  /// Returns the number of multiprocessors of the GPU. Grids of persistent kernels: see persistent_processors().
  int processors() const;
  /// Returns the allocator of device memory. A freed block may be used by later work of this stream at once. Before
  /// freeing a block that other streams use, wait for their work on the host or make this stream wait for it. If memory
  /// is short, an allocation returns free blocks to the driver, which waits for the device: first it waits, as
  /// wait_until() does, for work that depends on other ranks.
  Allocator& memory() const;
  /// Records the time of every launch in `profile` from now on, with events on the device; null to stop. Call it only
  /// while the old and the new profile have no open scope.
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

  /// Waits until all work is done. Throws an Error if any of it failed, for example because a kernel met an index out
  /// of bounds (cuda_fault.h), or if the stream is recording.
  void synchronise() const;
  /// Waits on the host until `reached()` is true, which this stream's work must bring about. Every wait for the stream
  /// uses this function; while it waits it calls the observers, which can end it by throwing.
  void wait_until(const std::function<bool()>& reached) const;
  /// Registers `observer` to be called during waits. It must stay valid until remove_observer().
  void add_observer(WaitObserver& observer) const;
  void remove_observer(WaitObserver& observer) const;
  /// True while the stream's work is recorded as a CUDA graph: nothing executes, and waiting for the stream is an
  /// error.
  bool recording() const;
  /// Returns the location in device memory where kernels record the first out-of-range index that they meet.
  DeviceFault* fault() const;

 private:
  struct State;
  std::shared_ptr<void>& kernel_state(const std::type_info& type) const;

  std::shared_ptr<State> state_;
};

}  // namespace lyceum
