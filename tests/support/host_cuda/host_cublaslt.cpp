#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cublasLt.h"
#include "cuda_bf16.h"
#include "host_stream.h"

struct cublasLtContext {};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cublasOperation_t transpose[2] = {CUBLAS_OP_N, CUBLAS_OP_N};
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  std::uint64_t rows, cols;
  std::int64_t stride;
  std::int32_t batch = 1;
  std::int64_t offset = 0;  // elements from one matrix of a batch to the next
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};
};

namespace {

/// The contents of an algorithm's 64 bytes.
struct Algorithm {
  std::uint64_t mark = 0x6c79636575676d6d;  // other values: not an algorithm that was ever proposed
  std::uint32_t a = 256, b = 256, c = 256;  // alignments that its three matrices must have
  std::int32_t parts = 1;                   // number of blocks over which it splits sums
  std::int32_t order = 0;  // order of addition: 0 forwards, 1 backwards, 2 even indices before odd ones
  std::int32_t batch = 1;  // number of products of a batch that it was proposed for
  std::int32_t unused[8] = {};
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));

Algorithm decoded(const cublasLtMatmulAlgo_t* algorithm) { return std::bit_cast<Algorithm>(*algorithm); }
bool is_valid(const Algorithm& algorithm, const cublasLtMatrixLayoutOpaque_t& result) {
  return algorithm.mark == Algorithm{}.mark && algorithm.batch == result.batch;
}

std::uint64_t place_in_order(std::int32_t order, std::uint64_t i, std::uint64_t depth) {
  if (order == 0) return i;
  if (order == 1) return depth - 1 - i;
  const std::uint64_t even = (depth + 1) / 2;
  return i < even ? 2 * i : 2 * (i - even) + 1;
}

/// Access to the elements of a matrix, which is transposed if `transpose` is true.
template <class A>
struct View {
  cublasLtMatrixLayoutOpaque_t layout;
  void* data;
  bool transpose = false;

  std::uint64_t rows() const { return transpose ? layout.cols : layout.rows; }
  std::uint64_t cols() const { return transpose ? layout.rows : layout.cols; }
  std::size_t place(std::uint64_t r, std::uint64_t c) const {
    return transpose ? r * static_cast<std::uint64_t>(layout.stride) + c
                     : c * static_cast<std::uint64_t>(layout.stride) + r;
  }
  View of_batch(std::int64_t i) const {
    std::int64_t bytes = 2;
    if (layout.type == CUDA_R_32F) bytes = 4;
    if (layout.type == CUDA_R_64F) bytes = 8;
    return {layout, static_cast<std::byte*>(data) + i * layout.offset * bytes, transpose};
  }
  A get(std::uint64_t r, std::uint64_t c) const {
    switch (layout.type) {
      case CUDA_R_64F: return static_cast<A>(static_cast<const double*>(data)[place(r, c)]);
      case CUDA_R_32F: return static_cast<A>(static_cast<const float*>(data)[place(r, c)]);
      default: {
        const unsigned bits = static_cast<const std::uint16_t*>(data)[place(r, c)];
        return static_cast<A>(__uint_as_float(bits << 16));
      }
    }
  }
  void set(std::uint64_t r, std::uint64_t c, A value) const {
    switch (layout.type) {
      case CUDA_R_64F: static_cast<double*>(data)[place(r, c)] = value; break;
      case CUDA_R_32F: static_cast<float*>(data)[place(r, c)] = static_cast<float>(value); break;
      default:
        static_cast<std::uint16_t*>(data)[place(r, c)] =
            __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(value)));
    }
  }
};

template <class A>
void multiply(std::int32_t order, A alpha, const View<A>& a, const View<A>& b, A beta, const View<A>& d) {
  const std::uint64_t cols = d.cols(), depth = a.cols();
  std::vector<A> widened(depth * cols), sums(cols);
  for (std::uint64_t k = 0; k < depth; ++k) {
    for (std::uint64_t c = 0; c < cols; ++c) widened[k * cols + c] = b.get(k, c);
  }
  for (std::uint64_t r = 0; r < d.rows(); ++r) {
    std::fill(sums.begin(), sums.end(), A(0));
    for (std::uint64_t i = 0; i < depth; ++i) {
      const std::uint64_t k = place_in_order(order, i, depth);
      const A factor = a.get(r, k);
      for (std::uint64_t c = 0; c < cols; ++c) sums[c] += factor * widened[k * cols + c];
    }
    for (std::uint64_t c = 0; c < cols; ++c) {
      d.set(r, c, beta == 0 ? alpha * sums[c] : alpha * sums[c] + beta * d.get(r, c));
    }
  }
}

/// True if every matrix of the batch is aligned to `bytes`.
template <class A>
bool aligned(const View<A>& matrix, std::uint32_t bytes) {
  for (std::int64_t i = 0; i < std::min(matrix.layout.batch, 2); ++i) {
    if (std::bit_cast<std::uintptr_t>(matrix.of_batch(i).data) % bytes != 0) return false;
  }
  return true;
}

/// True if the matrices of a batch of results share no element.
bool disjoint(const cublasLtMatrixLayoutOpaque_t& result) {
  const auto elements =
      static_cast<std::int64_t>(result.cols - 1) * result.stride + static_cast<std::int64_t>(result.rows);
  return result.batch == 1 || result.offset >= elements;
}

}  // namespace

std::size_t cublasLtGetVersion() {
  const char* version = std::getenv("HOST_CUDA_CUBLASLT_VERSION");
  return version ? std::strtoull(version, nullptr, 10) : 1;
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "the operation is wrong"; }
const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t cols, std::int64_t stride) {
  if (rows == 0 || cols == 0 || stride < static_cast<std::int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new cublasLtMatrixLayoutOpaque_t{type, rows, cols, stride};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  const bool count = attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
  if (bytes != (count ? sizeof layout->batch : sizeof layout->offset)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(count ? static_cast<void*>(&layout->batch) : &layout->offset, value, bytes);
  return layout->batch > 0 && layout->offset >= 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute, cudaDataType) {
  *operation = new cublasLtMatmulDescOpaque_t{compute};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete operation;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  std::memcpy(&operation->transpose[attribute - CUBLASLT_MATMUL_DESC_TRANSA], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) std::memcpy(&preference->scheme, value, bytes);
  if (attribute >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) {
    std::memcpy(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
  }
  return CUBLAS_STATUS_SUCCESS;
}
/// Proposes an algorithm with split sums first, unless the preference excludes them.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t result, cublasLtMatmulPreference_t preference,
                                              int requested, cublasLtMatmulHeuristicResult_t* results, int* found) {
  const auto& alignment = preference->alignment;
  *found = 0;
  for (const Algorithm& kind :
       {Algorithm{.parts = 2}, Algorithm{.order = 0}, Algorithm{.order = 1}, Algorithm{.order = 2}}) {
    if (*found == requested || (kind.parts > 1 && preference->scheme == CUBLASLT_REDUCTION_SCHEME_NONE)) continue;
    Algorithm algorithm = kind;
    algorithm.a = alignment[0], algorithm.b = alignment[1], algorithm.c = alignment[2];
    algorithm.batch = result->batch;
    results[(*found)++] = {std::bit_cast<cublasLtMatmulAlgo_t>(algorithm), 0, CUBLAS_STATUS_SUCCESS};
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t product,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  result->workspaceSize = 0;
  return result->state = is_valid(decoded(algorithm), *product) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
                                                    std::size_t bytes, std::size_t* written) {
  const std::int32_t parts = decoded(algorithm).parts, scheme = parts > 1 ? 1 : 0;
  std::memcpy(value, attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? &parts : &scheme, bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void*,
                              std::size_t, cudaStream_t stream) {
  const Algorithm how = decoded(algorithm);
  const std::int32_t batch = d_layout->batch;
  if (!is_valid(how, *d_layout) || c != d || a_layout->batch != batch || b_layout->batch != batch ||
      !disjoint(*d_layout)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const char* fastest = std::getenv("HOST_CUDA_FASTEST_GEMM");
  const bool slow = fastest && std::atoi(fastest) != how.order;
  const auto run = [&]<class A>(A) {
    const View<A> left{*a_layout, const_cast<void*>(a), operation->transpose[0] == CUBLAS_OP_T},
        right{*b_layout, const_cast<void*>(b), operation->transpose[1] == CUBLAS_OP_T}, product{*d_layout, d};
    if (left.cols() != right.rows() || left.rows() != product.rows() || right.cols() != product.cols() ||
        !aligned(left, how.a) || !aligned(right, how.b) || !aligned(product, how.c)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    host_cuda::enqueue(stream, [=, alpha = *static_cast<const A*>(alpha), beta = *static_cast<const A*>(beta)] {
      for (std::int32_t i = 0; i < batch; ++i) {
        multiply<A>(how.order, alpha, left.of_batch(i), right.of_batch(i), beta, product.of_batch(i));
      }
      if (slow) host_cuda::pretend_to_take(std::chrono::seconds(1));
      return true;
    });
    return CUBLAS_STATUS_SUCCESS;
  };
  return operation->compute == CUBLAS_COMPUTE_64F ? run(double{}) : run(float{});
}
