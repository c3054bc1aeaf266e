#include "optim/update_rule.h"

#include "optim/adamw_rule.h"

namespace lyceum {

namespace {

std::int64_t bytes(DType type) { return static_cast<std::int64_t>(size_of(type)); }

}  // namespace

const UpdateRuleKind& update_rule(const OptimConfig&) { return adamw_rule; }

std::int64_t UpdateRuleKind::state_bytes(DType type) const {
  const DType sums = accumulator_of(type);
  return bytes(sums) * (std::ssize(states) + (type == sums ? 0 : 1));
}

std::int64_t UpdateRuleKind::update_bytes(DType type) const {
  const DType sums = accumulator_of(type);
  const std::int64_t read_and_written = 1 + std::ssize(states);  // master, states
  return bytes(sums) * (2 * read_and_written + 1) + (type == sums ? 0 : bytes(type));
}

std::int64_t digest_bytes(std::int64_t blocks) { return (blocks + 1) * std::int64_t{sizeof(std::uint32_t)}; }

}  // namespace lyceum
