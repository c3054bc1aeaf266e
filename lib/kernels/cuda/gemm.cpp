#include "kernels/gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "core/allocator.h"
#include "core/cuda_event.h"
#include "kernels/checks.h"
#include "kernels/cuda/blas.h"
#include "kernels/cuda/sum_parts.h"

namespace lyceum {

namespace {

// The size that the documentation of cuBLAS recommends for Hopper.
constexpr std::size_t workspace_bytes = std::size_t{32} << 20;
constexpr int max_proposals = 8;

void check(cublasStatus_t status, Message call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  int device = -1;
  cudaGetDevice(&device);
  throw Error(ExitCode::failed,
              format_message("{} failed on GPU {}: {} ({})",
                             {call.text, device, cublasLtGetStatusString(status), cublasLtGetStatusName(status)}),
              call.where);
}

cudaDataType data_type(DType type) {
  switch (type) {
    case DType::bf16: return CUDA_R_16BF;
    case DType::f64: return CUDA_R_64F;
    default: return CUDA_R_32F;
  }
}

template <class T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
  check(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value), "cublasLtMatrixLayoutSetAttribute");
}

cublasLtMatrixLayout_t make_layout(DType type, const ColumnMajor& matrix, std::int32_t batch) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, data_type(type), static_cast<std::uint64_t>(matrix.rows),
                                   static_cast<std::uint64_t>(matrix.cols), matrix.stride),
        "cublasLtMatrixLayoutCreate");
  if (batch > 1) {
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch);
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.next);
  }
  return layout;
}

void set_transpose(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t factor, bool transpose) {
  const cublasOperation_t value = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(cublasLtMatmulDescSetAttribute(operation, factor, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}

template <class T>
void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
        "cublasLtMatmulPreferenceSetAttribute");
}

bool sums_in_one_block(const cublasLtMatmulAlgo_t& algorithm) {
  std::int32_t parts = 1;
  std::uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
  std::size_t written = 0;
  check(
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts, &written),
      "cublasLtMatmulAlgoConfigGetAttribute");
  check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme,
                                             &written),
        "cublasLtMatmulAlgoConfigGetAttribute");
  return parts <= 1 && scheme == CUBLASLT_REDUCTION_SCHEME_NONE;
}

}  // namespace

struct Blas::Plan {
  GemmShape shape;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  explicit Plan(const GemmShape& s) : shape(s) {
    const bool wide = shape.in == DType::f64;
    check(cublasLtMatmulDescCreate(&operation, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                   wide ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    const BlasGemm blas(shape);
    set_transpose(operation, CUBLASLT_MATMUL_DESC_TRANSA, blas.first.transpose);
    set_transpose(operation, CUBLASLT_MATMUL_DESC_TRANSB, blas.second.transpose);
    first = make_layout(shape.in, blas.first, shape.batch);
    second = make_layout(shape.in, blas.second, shape.batch);
    result = make_layout(shape.out, blas.result, shape.batch);
  }
  ~Plan() {
    for (cublasLtMatrixLayout_t layout : {first, second, result}) {
      if (layout) cublasLtMatrixLayoutDestroy(layout);
    }
    if (operation) cublasLtMatmulDescDestroy(operation);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// Returns the library's proposals with a fixed order of summation, best first; empty if there is none.
  std::vector<cublasLtMatmulAlgo_t> proposals(cublasLtHandle_t handle) const {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const std::shared_ptr<cublasLtMatmulPreferenceOpaque_t> owner(preference, cublasLtMatmulPreferenceDestroy);
    prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes});
    prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.b_alignment);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.a_alignment);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.c_alignment);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.c_alignment);
    std::array<cublasLtMatmulHeuristicResult_t, max_proposals> found{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, operation, first, second, result, result,
                                                                 preference, max_proposals, found.data(), &count);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "cublasLtMatmulAlgoGetHeuristic");
    std::vector<cublasLtMatmulAlgo_t> fixed;
    for (int i = 0; i < count; ++i) {
      const auto& proposal = found[static_cast<std::size_t>(i)];
      if (proposal.state == CUBLAS_STATUS_SUCCESS && sums_in_one_block(proposal.algo)) fixed.push_back(proposal.algo);
    }
    return fixed;
  }

  /// Throws an Error if the library rejects the pinned algorithm, or its order of summation is not fixed.
  void require_good(cublasLtHandle_t handle) const {
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status =
        cublasLtMatmulAlgoCheck(handle, operation, first, second, this->result, this->result, &algorithm, &result);
    require_input(
        status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_bytes && sums_in_one_block(algorithm),
        "cuBLASLt cannot run the pinned algorithm for {} x {} x {} from {} to {} here ({}): "
        "remove gemm.json in run.dir, and run.gemm_file, to choose algorithms again",
        shape.m, shape.k, shape.n, name_of(shape.in), name_of(shape.out), cublasLtGetStatusName(status));
  }
};

Blas::Blas() { check(cublasLtCreate(&handle_), "cublasLtCreate"); }

Blas::~Blas() {
  if (handle_) cublasLtDestroy(handle_);
}

std::byte* Blas::workspace(const CudaStream& stream) {
  if (!workspace_) workspace_ = stream.memory().allocate(workspace_bytes, MemoryKind::buffers);
  return workspace_.get();
}

void Blas::set_choosing(GemmChoiceMethod choosing) {
  choosing_ = choosing;
  choices_.clear();
  plans_.clear();
}

void Blas::pin(const GemmChoices& choices) {
  for (const auto& [shape, algorithm] : choices) choices_.insert_or_assign(shape, algorithm);
  plans_.clear();  // rebuilt on next use, from the pinned choices
}

void Blas::execute(const CudaStream& stream, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                   const Operands& operands) const {
  const double one = 1, kept = plan.shape.accumulate ? 1 : 0;
  const float one_f = 1, kept_f = static_cast<float>(kept);
  const bool wide = plan.shape.in == DType::f64;
  const void* alpha = wide ? static_cast<const void*>(&one) : &one_f;
  const void* beta = wide ? static_cast<const void*>(&kept) : &kept_f;
  const auto& [a, b, c] = operands;
  check(cublasLtMatmul(handle_, plan.operation, alpha, b, plan.first, a, plan.second, beta, c, plan.result, c,
                       plan.result, &algorithm, workspace_.get(), workspace_bytes, stream.handle()),
        "cublasLtMatmul");
}

/// Returns the index of the fastest proposal. Returns 0 without timing if the stream is recording, since then the host
/// cannot wait, or if there is no memory for the scratch result. Without `accumulate` the result is simply overwritten
/// in each trial. With it, scratch memory takes the place of the result, which must be added to only once.
std::size_t Blas::time(const CudaStream& stream, const Plan& plan, std::span<const cublasLtMatmulAlgo_t> proposals,
                       Operands operands) const {
  if (stream.recording()) return 0;
  const GemmShape& shape = plan.shape;
  std::shared_ptr<std::byte> scratch;
  if (shape.accumulate) {
    const auto bytes = static_cast<std::size_t>(shape.batch * shape.m * shape.c_stride) * size_of(shape.out) + 256;
    try {
      scratch = stream.memory().allocate_zeros(bytes, MemoryKind::buffers);
    } catch (const Error&) {
      return 0;
    }
    operands.c = scratch.get() + shape.c_alignment % 256;  // with the same alignment as the result
  }
  const CudaEvent begin(CudaEvent::Timing::on), end(CudaEvent::Timing::on);
  return choose_fastest(proposals.size(), [&](std::size_t i) {
    begin.record(stream.handle());
    execute(stream, plan, proposals[i], operands);
    end.record(stream.handle());
    stream.wait_until([&] { return end.reached(); });
    return end.seconds_since(begin);
  });
}

std::shared_ptr<Blas::Plan> Blas::make_plan(const CudaStream& stream, const GemmShape& shape,
                                            const Operands& operands) {
  auto plan = std::make_shared<Plan>(shape);
  if (const auto chosen = choices_.find(shape); chosen != choices_.end()) {
    plan->algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(chosen->second.bits);
    plan->require_good(handle_);
    return plan;
  }
  const std::vector<cublasLtMatmulAlgo_t> proposals = plan->proposals(handle_);
  require(!proposals.empty(), "cuBLASLt has no algorithm with a fixed order of sums for {} x {} x {} from {} to {}",
          shape.m, shape.k, shape.n, name_of(shape.in), name_of(shape.out));
  const bool timed = choosing_ == GemmChoiceMethod::timed && proposals.size() > 1;
  const std::size_t chosen = timed ? time(stream, *plan, proposals, operands) : 0;
  plan->algorithm = proposals[chosen];
  choices_[shape] = {.bits = std::bit_cast<decltype(GemmAlgorithm::bits)>(plan->algorithm),
                     .proposal = static_cast<std::int32_t>(chosen)};
  return plan;
}

template <class T, class Out>
void Blas::multiply(const CudaStream& stream, const Gemm<T, Out>& gemm) {
  const GemmShape shape = shape_of(gemm);
  if (shape.m == 0 || shape.n == 0) return;
  if (shape.k == 0) {  // an empty sum
    if (shape.accumulate) return;
    const std::size_t size = sizeof(Out);
    check(
        cudaMemset2DAsync(gemm.c.data, static_cast<std::size_t>(shape.c_stride) * size, 0,
                          static_cast<std::size_t>(shape.n) * size, static_cast<std::size_t>(shape.m), stream.handle()),
        "cudaMemset2DAsync");
    return;
  }
  if constexpr (std::is_same_v<Out, float>) {  // parts in bf16 would be rounded
    if (cut_sum(shape.m, shape.n, shape.k).parts > 1) return multiply_in_parts(stream, gemm, shape.m);
  }
  multiply_batch(stream, gemm, 1);
}

template <class T, class Out>
void Blas::multiply(const CudaStream& stream, const GemmBatch<T, Out>& batch) {
  const GemmShape shape = shape_of(batch.first);
  if (shape.m == 0 || shape.n == 0) return;
  constexpr std::int64_t most = 1 << 15;  // products of one call of the library
  const bool together = batch.count > 1 && shape.k > 0;
  for (std::int64_t i = 0; i < batch.count; i += together ? most : 1) {
    const auto count = static_cast<std::int32_t>(std::min(most, batch.count - i));
    together ? multiply_batch(stream, batch.at(i), count, true) : multiply(stream, batch.at(i));
  }
}

template <class T, class Out>
void Blas::multiply_batch(const CudaStream& stream, const Gemm<T, Out>& gemm, std::int32_t batch, bool separate) {
  workspace(stream);
  const GemmShape shape = batch_of(shape_of(gemm), batch, separate);
  const Operands operands{.a = gemm.a.data, .b = gemm.b.data, .c = gemm.c.data};
  const auto& plan = plans_.get(shape, [&] { return make_plan(stream, shape, operands); });
  execute(stream, *plan, plan->algorithm, operands);
}

template <class T>
void Blas::multiply_in_parts(const CudaStream& stream, const Gemm<T, float>& gemm, std::int64_t height) {
  const std::int64_t m = gemm.transpose_a ? gemm.a.cols : gemm.a.rows, n = gemm.c.cols;
  const std::int64_t k = gemm.transpose_a ? gemm.a.rows : gemm.a.cols;
  const auto& [parts, depth, rest] = cut_sum(m, n, k);
  const std::int64_t rows = (parts + (rest.count > 0 ? 1 : 0)) * m;
  const auto memory = stream.memory().allocate(static_cast<std::size_t>(rows * n) * sizeof(float), MemoryKind::buffers);
  const Matrix<float> results(reinterpret_cast<float*>(memory.get()), rows, n);
  multiply_batch(stream, slice_of(gemm, {0, depth}, results.rows_from(0, m)), parts);
  if (rest.count > 0) multiply_batch(stream, slice_of(gemm, rest, results.rows_from(parts * m, m)), 1);
  run(stream, SumParts{.parts = results, .height = height, .c = gemm.c, .accumulate = gemm.accumulate});
}

template <class T, class Out>
void run(const CudaStream& stream, const Gemm<T, Out>& gemm) {
  stream.keep<Blas>().multiply(stream, gemm);
}

template <class T, class Out>
void run(const CudaStream& stream, const GemmBatch<T, Out>& batch) {
  stream.keep<Blas>().multiply(stream, batch);
}

void run(const CudaStream& stream, const SplitWeightGrad& grad) {
  const std::int64_t width = require_halves("SplitWeightGrad", grad.parts, grad.x.rows, grad.dw.rows);
  require_extents("SplitWeightGrad", "dw", grad.dw, grad.dw.rows, grad.x.cols);
  if (grad.dw.size() == 0) return;
  Gemm<bfloat16, float> gemm{
      .a = grad.parts, .b = grad.x, .c = grad.dw, .transpose_a = true, .accumulate = grad.accumulate};
  if (grad.x.rows > 0) return stream.keep<Blas>().multiply_in_parts(stream, gemm, width);
  gemm.a.cols = grad.dw.rows;  // an empty sum
  stream.keep<Blas>().multiply(stream, gemm);
}

LYCEUM_GEMM_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
