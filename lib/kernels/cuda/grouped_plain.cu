#include "kernels/cuda/grouped_plain_tile.h"
#include "kernels/cuda/grouped_plan.cuh"

namespace lyceum::grouped {

namespace {

/// A block of the GPU as PlainTile sees it.
template <class T>
class Block {
 public:
  __device__ explicit Block(PlainShared<T>& shared) : shared_(shared) { thread_.index = threadIdx.x; }
  template <class F>
  __device__ __forceinline__ void each(F&& f) {
    f(thread_);
  }
  __device__ __forceinline__ void sync() const { __syncthreads(); }
  __device__ __forceinline__ PlainShared<T>& shared() const { return shared_; }

 private:
  PlainThread<T> thread_;
  PlainShared<T>& shared_;
};

template <Product product, class T>
__global__ void __launch_bounds__(PlainTiling::threads, 3) plain_kernel(Plan plan) {
  __shared__ PlainShared<T> shared;
  Block<T> block(shared);
  const std::int32_t tiles = plan.first_tile[plan.count];
  std::int32_t slot = 0;
  for (std::int32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    slot = slot_of(plan.first_tile, slot, tile);
    const Expert& expert = plan.experts[slot];
    const Corner corner = corner_of(expert, tile - plan.first_tile[slot], PlainTiling::m, PlainTiling::n);
    PlainTile<product, T, Block<T>>(block, expert, corner).run();
  }
}

template <Product product, class T>
void launch(cudaStream_t stream, const Plan& plan) {
  plain_kernel<product, T><<<4 * multiprocessors(), PlainTiling::threads, 0, stream>>>(plan);
  check(cudaGetLastError(), "launch of a grouped product");
}

}  // namespace

template <class T>
void launch_plain(cudaStream_t stream, Workspace workspace, Product product, const Rows<T>& rows,
                  std::span<const Weight> weights) {
  const Plan plan = make_plan(stream, workspace, product, rows, weights, PlainTiling::m, PlainTiling::n);
  switch (product) {
    case Product::forward: return launch<Product::forward, T>(stream, plan);
    case Product::dgrad: return launch<Product::dgrad, T>(stream, plan);
    case Product::weight_grad: return launch<Product::weight_grad, T>(stream, plan);
  }
}

template void launch_plain(cudaStream_t, Workspace, Product, const Rows<float>&, std::span<const Weight>);
template void launch_plain(cudaStream_t, Workspace, Product, const Rows<double>&, std::span<const Weight>);

}  // namespace lyceum::grouped
