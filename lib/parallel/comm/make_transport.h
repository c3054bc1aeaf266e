#pragma once

#include "parallel/comm/carrier.h"

namespace lyceum {

/// Returns the transport for tensors in the memory of `stream`, for groups of ranks of `world`. Throws a usage Error if
/// `transport` does not suit the stream. `nccl` applies to Transport::nccl.
std::shared_ptr<TensorTransport> make_transport(Stream stream, Transport transport, const NcclOptions& nccl,
                                                const Communicator& world);

}  // namespace lyceum
