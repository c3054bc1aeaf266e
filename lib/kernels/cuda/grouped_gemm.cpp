#include "kernels/cuda/grouped_gemm.cuh"

#include <type_traits>
#include <vector>

#include "kernels/cuda/grouped_kernels.cuh"

namespace lyceum {

namespace grouped {

namespace {

template <class M>
std::vector<Weight> weights_of(std::span<const M> matrices, const Segments& segments) {
  require(matrices.size() == segments.rows.size(), "a grouped product has {} weights for {} segments", matrices.size(),
          segments.rows.size());
  require(matrices.size() <= max_experts, "a grouped product of {} experts is too large, at most {} are supported",
          matrices.size(), max_experts);
  std::vector<Weight> weights;
  for (const M& matrix : matrices) {
    weights.push_back({const_cast<void*>(static_cast<const void*>(matrix.data)), matrix.stride,
                       static_cast<std::int32_t>(matrix.rows), static_cast<std::int32_t>(matrix.cols)});
  }
  return weights;
}

template <class T>
Rows<T> rows_of(const Segments& segments, const SegmentedMatrix<const T>& x, const SegmentedMatrix<T>& y) {
  return {segments.begin.data(), segments.rows.data(), x.offset.data(), y.offset.data(),
          x.width.data(),        y.width.data(),       x.data,          y.data};
}

/// Makes `rows` read x, or dy of a weight gradient (`of_dy`), from the matrix that its rows are picked from. Throws an
/// Error if that matrix is not as wide as the weights require.
template <class T>
void read_picked(const Launch& launch, Rows<T>& rows, const PickedRows<T>& picked, bool of_dy,
                 std::span<const Weight> weights) {
  if (!picked) return;
  for (const Weight& weight : weights) {
    const std::int64_t width = of_dy ? y_width(launch.product, weight) : x_width(launch.product, weight);
    require(picked.x.cols == width, "{}: picked rows have {} columns, but must have {}", launch.name, picked.x.cols,
            width);
  }
  if (of_dy) {
    rows.y = const_cast<T*>(picked.x.data);
  } else {
    rows.x = picked.x.data;
  }
  (of_dy ? rows.picked_dy : rows.picked_x) = PickedFrom{nullptr, picked.x.rows, picked.x.stride};
}

template <class T>
void run_product(const Launch& launch, Rows<T> rows, const std::vector<Weight>& weights, const PickedRows<T>& picked,
                 bool of_dy, Kernel kernel) {
  if (weights.empty()) return;
  PickedIndices indices;
  read_picked<T>(launch, rows, picked, of_dy, weights);
  if (picked) {
    indices = pick(launch.stream, launch.name, picked.source, picked.divisor, picked.x.rows);
    (of_dy ? rows.picked_dy : rows.picked_x).row = indices.row;
  }
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (kernel != Kernel::plain && run_on_tensor_cores(launch, rows, weights, kernel)) return;
  }
  require(kernel == Kernel::automatic || kernel == Kernel::plain,
          "this GPU lacks the tensor cores that the chosen kernel needs");
  count_product(launch, Kernel::plain);
  run_plain(launch, rows, weights);
}

/// Returns the list of biases, null if there are none. Throws an Error unless there is one per segment.
template <class T>
const T* const* biases_of(const Launch& launch, SegmentVectors<const T> bias, const Segments& segments) {
  if (bias.empty()) return nullptr;
  require(bias.size() == segments.rows.size(), "{}: there are {} biases for {} segments", launch.name, bias.size(),
          segments.rows.size());
  return bias.data();
}

/// Launches the product and the activation as one kernel, if there is one for this work. Returns false, having launched
/// nothing, if there is not.
bool run_fused(const CudaStream& stream, const GemmThenActivation<bfloat16>& work, Kernel kernel) {
  const Launch launch{stream, "GemmThenActivation", Product::forward, work.function};
  const std::vector<Weight> weights = weights_of(work.weights, work.segments);
  const auto inputs = static_cast<int>(inputs_of(work.function.kind));
  Rows<bfloat16> rows = rows_of(work.segments, work.x, work.hidden);
  const auto& [values, offset, width] = work.activated;
  rows.activated = {.inputs = inputs,
                    .values = values,
                    .offset = offset.data(),
                    .width = width.data(),
                    .bias = biases_of(launch, work.bias, work.segments),
                    .function = work.function};
  for (const Weight& weight : weights) {
    require(weight.rows % inputs == 0, "{}: a weight of {} rows cannot be divided into gate and up projections",
            launch.name, weight.rows);
  }
  read_picked<bfloat16>(launch, rows, work.picked, false, weights);
  return run_with_activation(launch, rows, weights, work.picked, {}, kernel);
}

bool run_fused(const CudaStream& stream, const GemmThenActivationBackward<bfloat16>& work, Kernel kernel) {
  const Launch launch{stream, "GemmThenActivationBackward", Product::dgrad, work.function};
  const std::vector<Weight> weights = weights_of(work.weights, work.segments);
  Rows<bfloat16> rows = rows_of(work.segments, work.dy, work.d_hidden);
  rows.activated = {.inputs = static_cast<int>(inputs_of(work.function.kind)),
                    .values = work.activated.data,
                    .offset = work.activated.offset.data(),
                    .width = work.activated.width.data(),
                    .hidden = work.hidden.data,
                    .hidden_offset = work.hidden.offset.data(),
                    .hidden_width = work.hidden.width.data(),
                    .bias = biases_of(launch, work.bias, work.segments),
                    .function = work.function};
  read_picked<bfloat16>(launch, rows, work.picked, false, weights);
  return run_with_activation(launch, rows, weights, work.picked, work.gates, kernel);
}

/// float and double have no kernel that includes the activation.
template <class Work>
bool run_fused(const CudaStream&, const Work&, Kernel) {
  return false;
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const GroupedGemm<T>& grouped, Kernel kernel) {
  const auto& [segments, x, weights, y, transposed, picked] = grouped;
  const Launch launch{stream, "GroupedGemm", transposed ? Product::forward : Product::dgrad};
  run_product(launch, rows_of(segments, x, y), weights_of(weights, segments), picked, false, kernel);
}

template <class T>
void run(const CudaStream& stream, const GroupedWeightGrad<T>& grouped, Kernel kernel) {
  const auto& [segments, dy, x, d_weights, picked, picked_dy, accumulate] = grouped;
  require(!picked || !picked_dy, "a weight gradient can pick the rows of only one operand");
  const SegmentedMatrix<T> y{const_cast<T*>(dy.data), dy.offset, dy.width};
  const Launch launch{stream, "GroupedWeightGrad", Product::weight_grad};
  const bool of_dy = static_cast<bool>(picked_dy);
  Rows<T> rows = rows_of(segments, x, y);
  rows.accumulate = accumulate;
  run_product(launch, rows, weights_of(d_weights, segments), of_dy ? picked_dy : picked, of_dy, kernel);
}

template <class T>
void run(const CudaStream& stream, const GemmThenActivation<T>& work, Kernel kernel) {
  if (run_fused(stream, work, kernel)) return;
  run(stream, work.product(), kernel);
  lyceum::run(stream, work.activation());
}

template <class T>
void run(const CudaStream& stream, const GemmThenActivationBackward<T>& work, Kernel kernel) {
  if (run_fused(stream, work, kernel)) return;
  run(stream, work.product(), kernel);
  lyceum::run(stream, work.activation());
}

#define LYCEUM_CHOSEN_INSTANCE(...) template void run(const CudaStream&, const __VA_ARGS__&, Kernel);
LYCEUM_GROUPED_GEMM_KERNELS(LYCEUM_CHOSEN_INSTANCE)
LYCEUM_GROUPED_ACTIVATION_KERNELS(LYCEUM_CHOSEN_INSTANCE)

}  // namespace grouped

template <class T>
void run(const CudaStream& stream, const GroupedGemm<T>& grouped) {
  grouped::run(stream, grouped, grouped::Kernel::automatic);
}

template <class T>
void run(const CudaStream& stream, const GroupedWeightGrad<T>& grouped) {
  grouped::run(stream, grouped, grouped::Kernel::automatic);
}

template <class T>
void run(const CudaStream& stream, const GemmThenActivation<T>& work) {
  if (!grouped::run_fused(stream, work, grouped::Kernel::automatic)) launch_both(stream, work);
}

template <class T>
void run(const CudaStream& stream, const GemmThenActivationBackward<T>& work) {
  if (!grouped::run_fused(stream, work, grouped::Kernel::automatic)) launch_both(stream, work);
}

LYCEUM_GROUPED_GEMM_KERNELS(LYCEUM_CUDA_INSTANCE)
LYCEUM_GROUPED_ACTIVATION_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
