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

/// Where kernels run on a GPU: a queue of work, the device memory that results come from, and what kernels keep between
/// calls (handles, workspaces, chosen algorithms). A cheap handle: copies share one state. One host thread uses a
/// stream at a time. Launches return before the work is done.
class CudaStream {
 public:
  /// On GPU `device`, which becomes the calling thread's current one. `limit`: bytes that may be held at most, 0 for no
  /// limit. Throws where there is no such GPU.
  explicit CudaStream(int device = 0, std::size_t limit = 0);
  /// GPUs that this process sees; 0 without a driver.
  static int device_count();

  CUstream_st* handle() const;
  int device() const;
  /// Multiprocessors of the GPU: what grids of persistent kernels are sized by.
  int processors() const;
  /// A block freed here may be used by later work of this stream at once. Work of other streams must have ended, or
  /// this stream must wait for it, before a block that it uses is freed.
  Allocator& memory() const;
  /// Times every launch from now on, by events on the device; null for none.
  void set_profile(std::shared_ptr<Profile> profile) const;
  Profile* profile() const;

  /// What kernels of one family keep between calls, made at first use and living as long as the stream.
  template <class T>
  T& keep() const {
    std::shared_ptr<void>& slot = kept(typeid(T));
    if (!slot) slot = std::make_shared<T>();
    return *static_cast<T*>(slot.get());
  }

  /// Waits until all work is done. Throws what went wrong in it, an index out of bounds for instance (cuda_fault.h).
  void synchronise() const;
  /// Waits, on the host, until `reached()`, which this stream's work brings about. Every wait for the stream goes
  /// through here, so that its observers can end one that is in vain.
  void wait_until(const std::function<bool()>& reached) const;
  /// From now on `observer` is notified of waits, until it is removed.
  void add_observer(WaitObserver& observer) const;
  void remove_observer(WaitObserver& observer) const;
  /// Whether its work is being recorded as a graph: nothing runs, and nobody can wait for it.
  bool recording() const;
  /// Device memory in which kernels note the first bad index that they met.
  DeviceFault* fault() const;

 private:
  struct State;
  std::shared_ptr<void>& kept(const std::type_info& type) const;

  std::shared_ptr<State> state_;
};

}  // namespace lyceum
