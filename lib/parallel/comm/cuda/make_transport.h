#pragma once

#include "parallel/comm/carrier.h"

namespace lyceum {

/// Make the transports of tensors in the GPU memory of `stream`. `shared`: state of the groups that will use it.
std::shared_ptr<TensorTransport> make_staged_transport(const CudaStream& stream);
std::shared_ptr<TensorTransport> make_nccl_transport(const CudaStream& stream, std::shared_ptr<SharedState> shared,
                                                     const NcclOptions& options = {});

}  // namespace lyceum
