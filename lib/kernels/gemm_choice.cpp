#include "kernels/gemm_choice.h"

#ifdef LYCEUM_CUDA
#include "core/error.h"
#include "core/gpu.h"
#include "kernels/cuda/blas.h"
#endif

namespace lyceum {

#ifdef LYCEUM_CUDA

namespace {

Blas* blas_of(const Stream& stream) {
  const auto* gpu = std::get_if<CudaStream>(&stream);
  return gpu ? &gpu->keep<Blas>() : nullptr;
}

}  // namespace

void set_gemm_choice_method(const Stream& stream, GemmChoiceMethod method) {
  if (Blas* blas = blas_of(stream)) blas->set_choosing(method);
}

std::string gemm_device(const Stream& stream) {
  const auto* gpu = std::get_if<CudaStream>(&stream);
  if (!gpu) return {};
  return format_message("{}, cuBLASLt {}", {gpu_info(gpu->device()).name, cublasLtGetVersion()});
}

GemmChoices gemm_choices(const Stream& stream) {
  const Blas* blas = blas_of(stream);
  return blas ? blas->choices() : GemmChoices{};
}

void pin_gemms(const Stream& stream, const GemmChoices& choices) {
  if (Blas* blas = blas_of(stream)) blas->pin(choices);
}

#else

void set_gemm_choice_method(const Stream&, GemmChoiceMethod) {}
std::string gemm_device(const Stream&) { return {}; }
GemmChoices gemm_choices(const Stream&) { return {}; }
void pin_gemms(const Stream&, const GemmChoices&) {}

#endif

}  // namespace lyceum
