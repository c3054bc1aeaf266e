#include "optim/tensor_digest.h"

#include <span>

#include "core/copy.h"
#include "kernels/digest.h"

namespace lyceum {

std::vector<std::uint64_t> block_digests(const Stream& stream, const Tensor& values) {
  std::vector<std::uint64_t> digests(static_cast<std::size_t>(flat_blocks_of(values.size())));
  const Tensor made = Tensor::empty(stream, DType::i64, {std::ssize(digests)}, MemoryKind::buffers);
  const std::span there(reinterpret_cast<std::uint64_t*>(made.raw()), digests.size());
  dispatch_float(values.dtype(), [&]<class T>() {
    launch(stream, DigestBlocks<T>{.x = {values.data<T>(), static_cast<std::size_t>(values.size())}, .digests = there});
  });
  copy_to_host(stream, digests.data(), made.raw(), made.bytes());
  return digests;
}

std::uint64_t digest_of(const Stream& stream, const Tensor& values) {
  const std::vector<std::uint64_t> digests = block_digests(stream, values);
  return digest_of_bytes(digests.data(), digests.size() * sizeof(std::uint64_t));
}

}  // namespace lyceum
