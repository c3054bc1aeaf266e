#include "core/cuda_check.h"

namespace lyceum {

void fail_on_gpu(cudaError_t code, const Message& call) {
  cudaGetLastError();  // clears the error, if possible, so that the next call does not report it again
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess) device = -1;
  throw Error(ExitCode::failed,
              format_message("{} failed on GPU {}: {} ({})",
                             {call.text, device, cudaGetErrorString(code), cudaGetErrorName(code)}),
              call.where);
}

}  // namespace lyceum
