#include <type_traits>
#include <vector>

#include "kernels/cuda/grouped_gemm.cuh"
#include "kernels/cuda/grouped_kernels.cuh"

namespace lyceum {

namespace grouped {

namespace {

template <class M>
std::vector<Weight> weights_of(std::span<const M> matrices, const Segments& segments) {
  require(matrices.size() == segments.rows.size(), "{} weights for {} segments", matrices.size(), segments.rows.size());
  require(matrices.size() <= max_experts, "a grouped product of {} experts: {} is the most", matrices.size(),
          max_experts);
  std::vector<Weight> weights;
  for (const M& matrix : matrices) {
    weights.push_back({const_cast<void*>(static_cast<const void*>(matrix.data)), matrix.stride,
                       static_cast<std::int32_t>(matrix.rows), static_cast<std::int32_t>(matrix.cols)});
  }
  return weights;
}

template <class T>
void run_any(const Launch& launch, const Rows<T>& rows, const std::vector<Weight>& weights, Kernel kernel) {
  if (weights.empty()) return;
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (kernel != Kernel::plain && run_on_tensor_cores(launch, rows, weights, kernel)) return;
  }
  run_plain(launch, rows, weights);
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const GroupedGemm<T>& grouped, Kernel kernel) {
  const auto& [segments, x, weights, y, transposed] = grouped;
  const Rows<T> rows{segments.begin.data(), segments.rows.data(), x.offset.data(), y.offset.data(),
                     x.width.data(),        y.width.data(),       x.data,          y.data};
  run_any({stream, "GroupedGemm", transposed ? Product::forward : Product::dgrad}, rows, weights_of(weights, segments),
          kernel);
}

template <class T>
void run(const CudaStream& stream, const GroupedWeightGrad<T>& grouped, Kernel kernel) {
  const auto& [segments, dy, x, d_weights] = grouped;
  const Rows<T> rows{segments.begin.data(), segments.rows.data(), x.offset.data(), dy.offset.data(),
                     x.width.data(),        dy.width.data(),      x.data,          const_cast<T*>(dy.data)};
  run_any({stream, "GroupedWeightGrad", Product::weight_grad}, rows, weights_of(d_weights, segments), kernel);
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
