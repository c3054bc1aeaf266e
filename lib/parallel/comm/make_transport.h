#pragma once

#include "parallel/comm/carrier.h"

namespace lyceum {

/// What moves tensors of groups of `world`'s ranks where `stream` computes. Throws a usage Error where the two do not
/// fit together.
std::shared_ptr<TensorTransport> make_transport(Stream stream, Transport transport, const Communicator& world);

}  // namespace lyceum
