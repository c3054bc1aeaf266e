#include "config/mesh_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "config/config.h"
#include "config/mesh.h"

namespace lyceum {
namespace {

/// Formats a list of values as "1, 2 or 4".
std::string alternatives(const std::vector<std::int64_t>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 < values.size() ? ", " : " or ", values[i]);
  }
  return text;
}

/// Returns the divisors of `number` that are valid values of the key to which `member` refers: at most three, those
/// nearest to its current value, in ascending order.
template <class Member>
std::vector<std::int64_t> values_that_fit(Config config, int world, Member member, std::int64_t number) {
  constexpr std::size_t enough = 3;
  auto& value = member(config);
  const std::int64_t own = value;
  std::vector<std::int64_t> divisors;
  for (std::int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    divisors.push_back(d);
    if (d * d < number) divisors.push_back(number / d);
  }
  std::ranges::sort(divisors, {}, [&](std::int64_t divisor) { return std::abs(divisor - own); });
  std::vector<std::int64_t> found;
  for (const std::int64_t divisor : divisors) {
    if (found.size() == enough) break;
    value = static_cast<std::remove_reference_t<decltype(value)>>(divisor);
    if (fits_ranks(config, world)) found.push_back(divisor);
  }
  std::ranges::sort(found);
  return found;
}

/// Returns a number of ranks that form this mesh and can divide the batch, at most `world` if possible; 0 if there is
/// none. If the smallest mesh is impossible, its multiples are, too.
int ranks_that_fit(const Config& config, int world) {
  constexpr int tries = 1000;
  const std::int64_t fewest = fewest_ranks(config.parallel);
  if (fewest > 1 << 20 || !fits_ranks(config, static_cast<int>(fewest))) return 0;
  std::int64_t ranks = std::max<std::int64_t>(world / fewest, 1) * fewest;
  for (int i = 0; i < tries && ranks > fewest; ++i, ranks -= fewest) {
    if (fits_ranks(config, static_cast<int>(ranks))) return static_cast<int>(ranks);
  }
  return static_cast<int>(fewest);
}

/// Returns the number of which batch.global must be a multiple on `data` data ranks.
std::int64_t batch_unit(const Config& config, std::int64_t data) {
  const bool groups = config.parallel.schedule == ScheduleKind::interleaved;
  const std::int64_t passes = groups ? std::max(config.parallel.pipeline, 1) : 1;
  return data * std::max<std::int64_t>(config.batch.micro, 1) * passes;
}

}  // namespace

std::string ranks_advice(const Config& config, int world, const char* key, int ParallelConfig::*member) {
  std::string text;
  const auto add = [&](const std::string& way) { text += (text.empty() ? ": " : ", or ") + way; };
  if (const int ranks = ranks_that_fit(config, world)) {
    add(fmt::format("start {0} {1} (mpirun -n {0})", ranks, ranks == 1 ? "rank" : "ranks"));
  }
  const auto of_mesh = [member](Config& other) -> int& { return other.parallel.*member; };
  if (const auto values = values_that_fit(config, world, of_mesh, world); world > 1 && !values.empty()) {
    add(fmt::format("set {} = {}", key, alternatives(values)));
  }
  if (!text.empty()) return text;
  Config other = config;  // no number of ranks can divide the batch
  const std::int64_t ranks = fewest_ranks(config.parallel), data = data_ranks(config.parallel, static_cast<int>(ranks));
  if (data == 0) return {};
  const std::int64_t unit = data * std::max<std::int64_t>(config.batch.micro, 1);
  other.batch.global = std::max<std::int64_t>((config.batch.global + unit / 2) / unit, 1) * unit;
  if (!fits_ranks(other, static_cast<int>(ranks))) return {};
  return fmt::format(": start {0} ranks (mpirun -n {0}) with batch.global = {1}", ranks, other.batch.global);
}

std::string batch_advice(Config config, int world) {
  const std::int64_t unit = batch_unit(config, data_ranks(config.parallel, world));
  config.batch.global = (config.batch.global / unit + 1) * unit;
  return fits_ranks(config, world) ? fmt::format(": set a multiple of {}", unit) : "";
}

std::string micro_batch_advice(const Config& config, int world) {
  const std::int64_t share = config.batch.global / data_ranks(config.parallel, world);
  const auto micro = [](Config& other) -> std::int64_t& { return other.batch.micro; };
  const auto values = values_that_fit(config, world, micro, share);
  return values.empty() ? "" : fmt::format(": set batch.micro = {}", alternatives(values));
}

}  // namespace lyceum
