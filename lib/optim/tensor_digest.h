#pragma once

#include <cstdint>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Returns the digest of each block of flat_block elements of a tensor of a float type, see DigestBlocks: [⌈size /
/// flat_block⌉]. Waits for the stream.
std::vector<std::uint64_t> block_digests(const Stream& stream, const Tensor& values);

/// Returns one digest of all elements of a tensor of a float type. Waits for the stream.
std::uint64_t digest_of(const Stream& stream, const Tensor& values);

}  // namespace lyceum
