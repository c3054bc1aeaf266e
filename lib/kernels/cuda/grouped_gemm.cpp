#include "kernels/cuda/grouped_gemm.cuh"

#include <type_traits>
#include <vector>

#include "kernels/cuda/grouped_kernels.cuh"

namespace lyceum {

namespace grouped {

namespace {

template <class M>
std::vector<Weight> weights_of(std::span<const M> matrices, const Segments& segments) {
  require(matrices.size() == segments.rows.size(), "{} weights for {} segments", matrices.size(), segments.rows.size());
  require(matrices.size() <= max_experts, "a grouped product of {} experts; at most {}", matrices.size(), max_experts);
  std::vector<Weight> weights;
  for (const M& matrix : matrices) {
    weights.push_back({const_cast<void*>(static_cast<const void*>(matrix.data)), matrix.stride,
                       static_cast<std::int32_t>(matrix.rows), static_cast<std::int32_t>(matrix.cols)});
  }
  return weights;
}

/// Makes `rows` read x as it is picked; the result holds what they point to.
template <class T>
PickedIndices pick_rows(const Launch& launch, Rows<T>& rows, const PickedRows<T>& picked,
                        const std::vector<Weight>& weights) {
  if (!picked) return {};
  require(launch.product != Product::dgrad, "{}: rows are picked in the forward product and its weight gradient",
          launch.name);
  for (const Weight& weight : weights) {
    require(picked.x.cols == x_width(launch.product, weight), "{}: picked rows of {} columns for {}", launch.name,
            picked.x.cols, x_width(launch.product, weight));
  }
  PickedIndices indices = pick(launch.stream, launch.name, picked.source, picked.divisor, picked.x.rows);
  rows.x = picked.x.data;
  rows.x_rows = picked.x.rows;
  rows.x_stride = picked.x.stride;
  rows.picked = indices.row;
  return indices;
}

template <class T>
void run_any(const Launch& launch, const Rows<T>& rows, const std::vector<Weight>& weights, Kernel kernel) {
  if (weights.empty()) return;
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (kernel != Kernel::plain && run_on_tensor_cores(launch, rows, weights, kernel)) return;
  }
  require(kernel == Kernel::automatic || kernel == Kernel::plain, "this GPU has no tensor cores for the chosen kernel");
  count_product(launch, Kernel::plain);
  run_plain(launch, rows, weights);
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const GroupedGemm<T>& grouped, Kernel kernel) {
  const auto& [segments, x, weights, y, transposed, picked] = grouped;
  Rows<T> rows{segments.begin.data(), segments.rows.data(), x.offset.data(), y.offset.data(),
               x.width.data(),        y.width.data(),       x.data,          y.data};
  const Launch launch{stream, "GroupedGemm", transposed ? Product::forward : Product::dgrad};
  const std::vector<Weight> all = weights_of(weights, segments);
  const PickedIndices indices = pick_rows(launch, rows, picked, all);
  run_any(launch, rows, all, kernel);
}

template <class T>
void run(const CudaStream& stream, const GroupedWeightGrad<T>& grouped, Kernel kernel) {
  const auto& [segments, dy, x, d_weights, picked] = grouped;
  Rows<T> rows{segments.begin.data(), segments.rows.data(), x.offset.data(), dy.offset.data(),
               x.width.data(),        dy.width.data(),      x.data,          const_cast<T*>(dy.data)};
  const Launch launch{stream, "GroupedWeightGrad", Product::weight_grad};
  const std::vector<Weight> all = weights_of(d_weights, segments);
  const PickedIndices indices = pick_rows(launch, rows, picked, all);
  run_any(launch, rows, all, kernel);
}

template void run(const CudaStream&, const GroupedGemm<float>&, Kernel);
template void run(const CudaStream&, const GroupedGemm<double>&, Kernel);
template void run(const CudaStream&, const GroupedGemm<bfloat16>&, Kernel);
template void run(const CudaStream&, const GroupedWeightGrad<float>&, Kernel);
template void run(const CudaStream&, const GroupedWeightGrad<double>&, Kernel);
template void run(const CudaStream&, const GroupedWeightGrad<bfloat16>&, Kernel);

}  // namespace grouped

template <class T>
void run(const CudaStream& stream, const GroupedGemm<T>& grouped) {
  grouped::run(stream, grouped, grouped::Kernel::automatic);
}

template <class T>
void run(const CudaStream& stream, const GroupedWeightGrad<T>& grouped) {
  grouped::run(stream, grouped, grouped::Kernel::automatic);
}

template void run(const CudaStream&, const GroupedGemm<float>&);
template void run(const CudaStream&, const GroupedGemm<double>&);
template void run(const CudaStream&, const GroupedGemm<bfloat16>&);
template void run(const CudaStream&, const GroupedWeightGrad<float>&);
template void run(const CudaStream&, const GroupedWeightGrad<double>&);
template void run(const CudaStream&, const GroupedWeightGrad<bfloat16>&);

}  // namespace lyceum
