// Definitions of the cuBLASLt functions that Lyceum calls. Each forwards to the library, which the first call loads:
// loading takes 0.1 s and 200 MB, which processes that compute on a CPU should not pay for.
#include <cublasLt.h>

#include "core/library_on_demand.h"

#define LYCEUM_TEXT_OF(macro) LYCEUM_TEXT(macro)
#define LYCEUM_TEXT(text) #text

namespace {

constexpr lyceum::LibraryOnDemand library("cuBLASLt", "libcublasLt.so." LYCEUM_TEXT_OF(CUBLAS_VER_MAJOR));

}  // namespace

std::size_t cublasLtGetVersion() { LYCEUM_PASS_ON(library, cublasLtGetVersion); }
const char* cublasLtGetStatusName(cublasStatus_t status) { LYCEUM_PASS_ON(library, cublasLtGetStatusName, status); }
const char* cublasLtGetStatusString(cublasStatus_t status) { LYCEUM_PASS_ON(library, cublasLtGetStatusString, status); }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { LYCEUM_PASS_ON(library, cublasLtCreate, handle); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { LYCEUM_PASS_ON(library, cublasLtDestroy, handle); }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t cols, std::int64_t stride) {
  LYCEUM_PASS_ON(library, cublasLtMatrixLayoutCreate, layout, type, rows, cols, stride);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  LYCEUM_PASS_ON(library, cublasLtMatrixLayoutDestroy, layout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  LYCEUM_PASS_ON(library, cublasLtMatrixLayoutSetAttribute, layout, attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  LYCEUM_PASS_ON(library, cublasLtMatmulDescCreate, operation, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  LYCEUM_PASS_ON(library, cublasLtMatmulDescDestroy, operation);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  LYCEUM_PASS_ON(library, cublasLtMatmulDescSetAttribute, operation, attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  LYCEUM_PASS_ON(library, cublasLtMatmulPreferenceCreate, preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  LYCEUM_PASS_ON(library, cublasLtMatmulPreferenceDestroy, preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  LYCEUM_PASS_ON(library, cublasLtMatmulPreferenceSetAttribute, preference, attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  LYCEUM_PASS_ON(library, cublasLtMatmulAlgoGetHeuristic, handle, operation, a, b, c, d, preference, requested, results,
                 found);
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  LYCEUM_PASS_ON(library, cublasLtMatmulAlgoCheck, handle, operation, a, b, c, d, algorithm, result);
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
                                                    std::size_t bytes, std::size_t* written) {
  LYCEUM_PASS_ON(library, cublasLtMatmulAlgoConfigGetAttribute, algorithm, attribute, value, bytes, written);
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  LYCEUM_PASS_ON(library, cublasLtMatmul, handle, operation, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d,
                 d_layout, algorithm, workspace, workspace_bytes, stream);
}
