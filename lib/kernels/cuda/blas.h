#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/cuda/gemm_plans.h"
#include "kernels/cuda/gemm_shape.h"

namespace lyceum {

/// cuBLASLt of one stream: handle, workspace, and the algorithm chosen for each shape. Stored in the stream
/// (CudaStream::keep). No algorithm splits a sum over blocks, so the order of summation is fixed.
class Blas {
 public:
  Blas();
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // Selection of algorithms, see gemm_choice.h.
  void set_choosing(GemmChoiceMethod choosing);
  const GemmChoices& choices() const { return choices_; }
  void pin(const GemmChoices& choices);

  /// Computes the product. Throws an Error if extents do not fit or no algorithm with a fixed order of summation
  /// exists.
  template <class T, class Out>
  void multiply(const CudaStream& stream, const Gemm<T, Out>& gemm);
  /// Computes all products of a batch. Throws as multiply() does.
  template <class T, class Out>
  void multiply(const CudaStream& stream, const GemmBatch<T, Out>& batch);
  /// Computes the product with its sum over k split by cut_sum(): each part is computed into separate scratch memory,
  /// then the parts are added in order. op(a) may have several times `height` rows. The corresponding blocks of
  /// `height` rows of the result are also added up, and c receives the first c.rows rows of the total. Otherwise
  /// `height` is the number of rows of op(a).
  template <class T>
  void multiply_in_parts(const CudaStream& stream, const Gemm<T, float>& gemm, std::int64_t height);

 private:
  /// Descriptors of one shape's operation and matrices, and its chosen algorithm.
  struct Plan;
  struct Operands {
    const void *a, *b;
    void* c;
  };

  /// Computes `batch` products, of which `gemm` is the first, see GemmShape::batch and separate.
  template <class T, class Out>
  void multiply_batch(const CudaStream& stream, const Gemm<T, Out>& gemm, std::int32_t batch, bool separate = false);
  /// Returns the plan of a shape, with the pinned, the timed or the proposed algorithm.
  std::shared_ptr<Plan> make_plan(const CudaStream& stream, const GemmShape& shape, const Operands& operands);
  std::size_t time(const CudaStream& stream, const Plan& plan, std::span<const cublasLtMatmulAlgo_t> proposals,
                   Operands operands) const;
  void execute(const CudaStream& stream, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
               const Operands& operands) const;
  /// Returns the workspace, which the first call allocates.
  std::byte* workspace(const CudaStream& stream);

  cublasLtHandle_t handle_ = nullptr;
  std::shared_ptr<std::byte> workspace_;
  GemmChoiceMethod choosing_ = GemmChoiceMethod::heuristic;
  GemmChoices choices_;
  PlanCache<GemmShape, std::shared_ptr<Plan>> plans_;
};

}  // namespace lyceum
