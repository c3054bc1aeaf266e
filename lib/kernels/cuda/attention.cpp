#include "kernels/attention.h"

#include <type_traits>

#include "core/allocator.h"
#include "kernels/attention_checks.h"
#include "kernels/cuda/attention_kernels.cuh"
#include "kernels/stick_breaking.h"

namespace lyceum {

namespace {

template <class Task>
void run_task(const CudaStream& stream, const Task& task) {
  if constexpr (std::is_same_v<decltype(task.q.data), const bfloat16*>) {
    if (cuda::run_on_tensor_cores(stream, task)) return;
  }
  cuda::run_plain(stream, task);
}

/// Runs an attention that needs no scratch memory. Throws an Error if shapes do not fit.
template <class Attention>
void run_checked(const CudaStream& stream, const Attention& attention) {
  require_fitting(attention);
  require_countable(attention.shape);
  run_task(stream, cuda::task_of(attention));
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const AttentionForward<T>& attention) {
  run_checked(stream, attention);
}

template <class T>
void run(const CudaStream& stream, const AttentionBackward<T>& attention) {
  using A = Accumulator<T>;
  require_fitting(attention);
  require_countable(attention.shape);
  const auto bytes = static_cast<std::size_t>(cuda::delta_size(attention.shape)) * sizeof(A);
  const std::shared_ptr<std::byte> delta = stream.memory().allocate(bytes, MemoryKind::buffers);
  const auto task = cuda::task_of(attention, reinterpret_cast<A*>(delta.get()));
  cuda::run_delta(stream, task);
  run_task(stream, task);
}

template <class T>
void run(const CudaStream& stream, const StickBreakingForward<T>& attention) {
  run_checked(stream, attention);
}

template <class T>
void run(const CudaStream& stream, const StickBreakingBackward<T>& attention) {
  run_checked(stream, attention);
}

LYCEUM_ATTENTION_KERNELS(LYCEUM_CUDA_INSTANCE)
LYCEUM_STICK_BREAKING_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
