#include "core/copy.h"

#include <cstring>

#ifdef LYCEUM_CUDA
#include "core/cuda_copy.h"
#endif

namespace lyceum {

namespace {

void copy_to(const CpuStream&, void* device, const void* host, std::size_t bytes) { std::memcpy(device, host, bytes); }
void copy_to(const RehearsalStream&, void*, const void*, std::size_t) {}

void copy_from(const CpuStream&, void* host, const void* device, std::size_t bytes) {
  if (bytes) std::memcpy(host, device, bytes);
}
void copy_from(const RehearsalStream&, void* host, const void* device, std::size_t bytes) {
  if (bytes) std::memcpy(host, device, bytes);  // zeros, or the few values written directly
}

void copy_within(const CpuStream&, void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void copy_within(const RehearsalStream&, void*, const void*, std::size_t) {}

}  // namespace

void copy_to_device(const Stream& stream, void* device, const void* host, std::size_t bytes) {
  if (bytes) std::visit([&](const auto& own) { copy_to(own, device, host, bytes); }, stream);
}

void copy_to_host(const Stream& stream, void* host, const void* device, std::size_t bytes) {
  std::visit([&](const auto& own) { copy_from(own, host, device, bytes); }, stream);
}

void copy_on_device(const Stream& stream, void* to, const void* from, std::size_t bytes) {
  if (bytes) std::visit([&](const auto& own) { copy_within(own, to, from, bytes); }, stream);
}

}  // namespace lyceum
