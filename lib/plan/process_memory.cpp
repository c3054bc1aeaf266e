#include "plan/process_memory.h"

#include <algorithm>
#include <set>

#include "core/allocator.h"
#include "core/memory_room.h"
#include "kernels/cpu/native_bf16.h"
#include "model/routing/mixture.h"
#include "plan/mesh_rank.h"

namespace lyceum {

namespace {

constexpr double megabyte = 1e6;
constexpr double program = 48 * megabyte;  // 28 MB of them are pages of the program and its libraries
constexpr double messages = 12 * megabyte;

/// Returns the memory of the products in bf16 that kernels compile, one for each shape. Experts have one for each
/// number of rows, in multiples of 32.
double product_bytes(const Config& config) {
  if (config.run.precision != Precision::bf16 || !has_native_bf16()) return 0;
  constexpr double product = 0.15 * megabyte, dense = 60, of_width = 190, most = most_compiled_products;
  std::set<std::int64_t> widths;
  for (const Mixture& mixture : mixtures_of(config)) widths.insert(mixture.widths.begin(), mixture.widths.end());
  return product * std::min(most, dense + of_width * number(std::ssize(widths)));
}

}  // namespace

double process_bytes(const Config& config, int world, const RankMemory& memory, bool reading) {
  if (config.run.device == DeviceKind::cuda) return 0;
  const bool copies = !reading && config.checkpoint.background;
  return program + MemoryRoom::reserve + (world > 1 ? messages : 0) + memory.total() / Allocator::pool_parts +
         product_bytes(config) + (copies ? memory.saved : 0);
}

}  // namespace lyceum
