#include "optim/update_rule.h"

#include "optim/adamw_rule.h"

namespace lyceum {

namespace {

std::int64_t bytes(DType type) { return static_cast<std::int64_t>(size_of(type)); }

}  // namespace

std::span<const std::string_view> state_names(const OptimConfig&) { return adamw_states; }

std::int64_t state_bytes(const OptimConfig& config, DType type) {
  const DType sums = accumulator_of(type);
  return bytes(sums) * (std::ssize(state_names(config)) + (type == sums ? 0 : 1));
}

std::int64_t update_bytes(const OptimConfig& config, DType type) {
  const DType sums = accumulator_of(type);
  const std::int64_t read_and_written = 1 + std::ssize(state_names(config));  // master, states
  return bytes(sums) * (2 * read_and_written + 1) + (type == sums ? 0 : bytes(type));
}

}  // namespace lyceum
