#include <type_traits>
#include <vector>

#include "kernels/cuda/grouped_gemm.cuh"
#include "kernels/cuda/grouped_plan.cuh"

namespace lyceum::grouped {

namespace {

/// The experts that wgmma can compute go there and the rest to mma.sync; each launch sees the others' weights as empty.
void launch_bf16(cudaStream_t stream, const Workspace& workspace, Product product, const Rows<bfloat16>& rows,
                 std::vector<Weight> weights, Kernel kernel) {
  std::vector<Weight> fast(weights.size());
  bool any_fast = false, any_other = false;
  const bool wgmma = kernel != Kernel::mma_sync && wgmma_is_here();
  for (std::size_t e = 0; e < weights.size(); ++e) {
    const bool takes = wgmma && wgmma_takes(product, rows, weights[e]);
    require(takes || kernel == Kernel::automatic || kernel == Kernel::mma_sync,
            "expert {} cannot be computed by wgmma: its rows are not aligned, or the "
            "device is no sm_90",
            e);
    if (takes) std::swap(fast[e], weights[e]);
    (takes ? any_fast : any_other) = true;
  }
  if (any_fast) launch_wgmma(stream, workspace, product, rows, fast, kernel);
  if (any_other) launch_mma(stream, workspace, product, rows, weights);
}

template <class T>
void launch_any(cudaStream_t stream, void* memory, Product product, const Rows<T>& rows, std::vector<Weight> weights,
                Kernel kernel) {
  if (weights.empty()) return;
  const Workspace workspace(memory, static_cast<std::int64_t>(weights.size()));
  if constexpr (std::is_same_v<T, bfloat16>) {
    launch_bf16(stream, workspace, product, rows, std::move(weights), kernel);
  } else {
    launch_plain(stream, workspace, product, rows, weights);
  }
}

template <class M>
std::vector<Weight> weights_of(std::span<const M> matrices, const Segments& segments) {
  require(matrices.size() == segments.rows.size(), "{} weights for {} segments", matrices.size(), segments.rows.size());
  std::vector<Weight> weights;
  for (const M& matrix : matrices) {
    weights.push_back({const_cast<void*>(static_cast<const void*>(matrix.data)), matrix.stride,
                       static_cast<std::int32_t>(matrix.rows), static_cast<std::int32_t>(matrix.cols)});
  }
  return weights;
}

}  // namespace

std::size_t workspace_bytes(std::int64_t experts) { return Workspace::bytes(experts); }

template <class T>
void launch(cudaStream_t stream, void* workspace, const GroupedGemm<T>& grouped, Kernel kernel) {
  const Rows<T> rows{grouped.segments.begin.data(),
                     grouped.segments.rows.data(),
                     grouped.x.offset.data(),
                     grouped.y.offset.data(),
                     grouped.x.data,
                     grouped.y.data};
  launch_any(stream, workspace, grouped.transpose_weights ? Product::forward : Product::dgrad, rows,
             weights_of(grouped.weights, grouped.segments), kernel);
}

template <class T>
void launch(cudaStream_t stream, void* workspace, const GroupedWeightGrad<T>& grouped, Kernel kernel) {
  const Rows<T> rows{grouped.segments.begin.data(),
                     grouped.segments.rows.data(),
                     grouped.x.offset.data(),
                     grouped.dy.offset.data(),
                     grouped.x.data,
                     const_cast<T*>(grouped.dy.data)};
  launch_any(stream, workspace, Product::weight_grad, rows, weights_of(grouped.d_weights, grouped.segments), kernel);
}

template void launch(cudaStream_t, void*, const GroupedGemm<float>&, Kernel);
template void launch(cudaStream_t, void*, const GroupedGemm<double>&, Kernel);
template void launch(cudaStream_t, void*, const GroupedGemm<bfloat16>&, Kernel);
template void launch(cudaStream_t, void*, const GroupedWeightGrad<float>&, Kernel);
template void launch(cudaStream_t, void*, const GroupedWeightGrad<double>&, Kernel);
template void launch(cudaStream_t, void*, const GroupedWeightGrad<bfloat16>&, Kernel);

}  // namespace lyceum::grouped
