#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/cuda/gemm_plans.h"
#include "kernels/cuda/gemm_shape.h"

namespace lyceum {

/// cuBLASLt of one stream: handle, workspace, and the algorithm of each shape, kept with the stream (CudaStream::keep).
/// No algorithm splits a sum over blocks, so that the order of summation is fixed.
class Blas {
 public:
  Blas();
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // See gemm_choice.h.
  void set_choosing(GemmChoosing choosing);
  const GemmChoices& choices() const { return choices_; }
  void pin(const GemmChoices& choices);

  template <class T, class Out>
  void multiply(const CudaStream& stream, const Gemm<T, Out>& gemm);
  /// The sum over k in the parts of cut_sum(), each with memory of its own, then added up in order. op(a) may have
  /// several times `height` rows: blocks that are added up as well, of which c has the first rows.
  template <class T>
  void multiply_in_parts(const CudaStream& stream, const Gemm<T, float>& gemm, std::int64_t height);

 private:
  /// Descriptions of the operation and its matrices, and the chosen algorithm.
  struct Plan;
  struct Operands {
    const void *a, *b;
    void* c;
  };

  template <class T, class Out>
  void multiply_batch(const CudaStream& stream, const Gemm<T, Out>& gemm, std::int32_t batch);
  std::shared_ptr<Plan> make_plan(const CudaStream& stream, const GemmShape& shape, const Operands& operands);
  std::size_t time(const CudaStream& stream, const Plan& plan, std::span<const cublasLtMatmulAlgo_t> proposals,
                   Operands operands) const;
  void execute(const CudaStream& stream, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
               const Operands& operands) const;
  std::byte* workspace(const CudaStream& stream);

  cublasLtHandle_t handle_ = nullptr;
  std::shared_ptr<std::byte> workspace_;
  GemmChoosing choosing_ = GemmChoosing::heuristic;
  GemmChoices choices_;
  PlanCache<GemmShape, std::shared_ptr<Plan>> plans_;
};

}  // namespace lyceum
