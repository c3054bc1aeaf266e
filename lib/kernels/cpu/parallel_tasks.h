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

/// Calls task(i, thread) for every i in [0, count), each once, on up to `threads` threads; who takes which is not
/// fixed. Inside a task, OpenMP and oneDNN see one thread. Throws the first exception of a task when all have ended.
template <class Task>
void parallel_tasks(int threads, std::int64_t count, Task&& task) {
  const int team = static_cast<int>(std::clamp<std::int64_t>(count, 1, threads));
  std::exception_ptr failure;
#pragma omp parallel num_threads(team)
  {
    const int outside = omp_get_max_threads();
    omp_set_num_threads(1);  // a team of one is no parallel region to oneDNN
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

/// Scratch memory for every thread of a parallel_tasks call.
class ThreadScratch {
 public:
  ThreadScratch(const CpuStream& stream, std::int64_t bytes)
      : bytes_(round_up<std::int64_t>(bytes, 64)),
        memory_(bytes
                    ? stream.memory().allocate(static_cast<std::size_t>(bytes_ * stream.threads()), MemoryKind::buffers)
                    : nullptr) {}
  std::byte* of(int thread) const { return memory_.get() + thread * bytes_; }

 private:
  std::int64_t bytes_;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace lyceum
