#pragma once

#include <cublasLt.h>

#include <memory>

#include "kernels/cuda/gemm_plans.h"
#include "kernels/cuda/gemm_shape.h"

namespace lyceum {

/// cuBLASLt of one stream: handle, workspace, and the algorithm of each shape, kept with the stream (CudaStream::keep).
/// No algorithm splits a sum over blocks, so that the order of summation is fixed.
class Blas {
 public:
  /// How a shape's algorithm is chosen, once. `heuristic`: the library's first proposal, the same in every run.
  /// `timed`: the fastest of its proposals here and now; runs may then differ in the last bits.
  enum class Choice { heuristic, timed };

  Blas();
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  /// For shapes that come from now on; forgets what was chosen.
  void set_choice(Choice choice) {
    choice_ = choice;
    plans_.clear();
  }
  template <class T, class Out>
  void multiply(const CudaStream& stream, const Gemm<T, Out>& gemm);

 private:
  /// Descriptions of the operation and its matrices, and the chosen algorithm.
  struct Plan;

  std::shared_ptr<Plan> make_plan(const CudaStream& stream, const GemmShape& shape, const void* a, const void* b);
  void execute(const CudaStream& stream, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const void* a,
               const void* b, void* c) const;
  std::byte* workspace(const CudaStream& stream);

  cublasLtHandle_t handle_ = nullptr;
  std::shared_ptr<std::byte> workspace_;
  Choice choice_ = Choice::heuristic;
  PlanCache<GemmShape, std::shared_ptr<Plan>> plans_;
};

}  // namespace lyceum
