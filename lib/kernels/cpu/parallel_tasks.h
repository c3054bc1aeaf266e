#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>

#include "core/allocator.h"
#include "core/round_up.h"
#include "core/stream.h"

namespace lyceum {

/// Calls task(i, thread) once for every i in [0, count), on up to `threads` OpenMP threads; thread is in [0, threads).
/// The assignment of tasks to threads is not deterministic. Within a task, OpenMP and oneDNN use one thread. If tasks
/// throw, the first exception is rethrown after all tasks have ended.
template <class Task>
void parallel_tasks(int threads, std::int64_t count, Task&& task) {
  const int team = static_cast<int>(std::clamp<std::int64_t>(count, 1, threads));
  std::exception_ptr failure;
#pragma omp parallel num_threads(team)
  {
    const int outside = omp_get_max_threads();
    omp_set_num_threads(1);  // oneDNN does not recognise a team of one thread as a parallel region
#pragma omp for schedule(dynamic)
    for (std::int64_t i = 0; i < count; ++i) {
      try {
        task(i, omp_get_thread_num());
      } catch (...) {
#pragma omp critical(lyceum_parallel_tasks)
        if (!failure) failure = std::current_exception();
      }
    }
    omp_set_num_threads(outside);
  }
  if (failure) std::rethrow_exception(failure);
}

/// Scratch memory of `bytes` bytes for every thread of a parallel_tasks call, aligned to 64 bytes. Freed with the
/// object.
class ThreadScratch {
 public:
  ThreadScratch(const CpuStream& stream, std::int64_t bytes)
      : bytes_(round_up<std::int64_t>(bytes, 64)),
        memory_(bytes
                    ? stream.memory().allocate(static_cast<std::size_t>(bytes_ * stream.threads()), MemoryKind::buffers)
                    : nullptr) {}
  /// Returns the memory of a thread. Must not be called if bytes is 0.
  std::byte* of(int thread) const { return memory_.get() + thread * bytes_; }

 private:
  std::int64_t bytes_;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace lyceum
