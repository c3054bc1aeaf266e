#include "kernels/capacity.h"

#include <algorithm>
#include <vector>

#include "kernels/capacity_checks.h"
#include "kernels/cpu/checks.h"

namespace lyceum {

namespace {

/// Calls f(row, sequence) for every token. Throws an Error if an index is out of range; `name` is the kernel's.
template <class Choices, class F>
void for_tokens(const char* name, const Choices& of, const F& f) {
  for (std::int64_t t = 0; t < of.index.rows; ++t) {
    require_indices(name, "index", std::span(of.index.row(t), static_cast<std::size_t>(of.index.cols)), -1,
                    of.counts.cols);
    f(t, (of.first + t) / of.seq_len);
  }
}

/// Returns next[(s · k + j) · experts + e]: the number of choices of expert e in sequence s that take precedence over
/// the first j-th choice of this rank's tokens. These are all i-th choices with i < j, and the j-th choices of tokens
/// on lower ranks.
std::vector<std::int64_t> choices_before(const DropChoices& drop, std::int64_t sequences) {
  const std::int64_t k = drop.index.cols, experts = drop.counts.cols;
  std::vector<std::int64_t> next(static_cast<std::size_t>(sequences * k * experts));
  for (std::int64_t s = 0; s < sequences; ++s) {
    for (std::int64_t e = 0; e < experts; ++e) {
      std::int64_t before = 0;
      for (std::int64_t j = 0; j < k; ++j) {
        for (std::int64_t rank = 0; rank < drop.ranks; ++rank) {
          if (rank == drop.rank) next[static_cast<std::size_t>((s * k + j) * experts + e)] = before;
          before += drop.counts.row((rank * sequences + s) * k + j)[e];
        }
      }
    }
  }
  return next;
}

}  // namespace

void run(const CpuStream&, const CountChoices& count) {
  require_fitting(count);
  const std::int64_t k = count.index.cols;
  for (std::int64_t r = 0; r < count.counts.rows; ++r) std::fill_n(count.counts.row(r), count.counts.cols, 0);
  for_tokens("CountChoices", count, [&](std::int64_t t, std::int64_t s) {
    for (std::int64_t j = 0; j < k; ++j) {
      if (const std::int32_t e = count.index.row(t)[j]; e >= 0) ++count.counts.row(s * k + j)[e];
    }
  });
}

void run(const CpuStream&, const DropChoices& drop) {
  const std::int64_t sequences = require_fitting(drop), k = drop.index.cols, experts = drop.counts.cols;
  const std::int64_t capacity = capacity_of(drop);
  std::vector<std::int64_t> next = choices_before(drop, sequences);
  for_tokens("DropChoices", drop, [&](std::int64_t t, std::int64_t s) {
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int32_t e = drop.index.row(t)[j];
      const bool full = e >= 0 && next[static_cast<std::size_t>((s * k + j) * experts + e)]++ >= capacity;
      drop.kept.row(t)[j] = full ? -1 : e;
      if (full && drop.dropped.rows > 0) ++drop.dropped.row(j)[e];
    }
  });
}

}  // namespace lyceum
