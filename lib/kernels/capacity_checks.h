#pragma once

#include "core/error.h"
#include "kernels/capacity.h"
#include "kernels/checks.h"

namespace lyceum {

/// Throws an Error unless the operands fit together. Used by all devices. Returns the number of sequences.
inline std::int64_t require_fitting(const CountChoices& count) {
  const std::int64_t k = count.index.cols, sequences = k > 0 ? count.counts.rows / k : 0;
  require_extents("CountChoices", "counts", count.counts, sequences * k, count.counts.cols);
  require(count.seq_len > 0 && count.first >= 0 && count.first + count.index.rows <= sequences * count.seq_len,
          "CountChoices: tokens {} to {} are not in {} sequences of {}", count.first, count.first + count.index.rows,
          sequences, count.seq_len);
  return sequences;
}

/// Throws an Error unless the operands fit together. Used by all devices. Returns the number of sequences.
inline std::int64_t require_fitting(const DropChoices& drop) {
  const std::int64_t k = drop.index.cols, sequences = k > 0 ? drop.counts.rows / (drop.ranks * k) : 0;
  require_extents("DropChoices", "counts", drop.counts, drop.ranks * sequences * k, drop.counts.cols);
  require_extents("DropChoices", "kept", drop.kept, drop.index.rows, k);
  if (drop.dropped.rows > 0) require_extents("DropChoices", "dropped", drop.dropped, k, drop.counts.cols);
  if (!drop.choices.empty()) require_length("DropChoices", "choices", drop.choices, 1);
  require(drop.rank >= 0 && drop.rank < drop.ranks, "DropChoices: rank {} is not one of {} ranks", drop.rank,
          drop.ranks);
  require(drop.seq_len > 0 && drop.first >= 0 && drop.first + drop.index.rows <= sequences * drop.seq_len,
          "DropChoices: tokens {} to {} are not in {} sequences of {}", drop.first, drop.first + drop.index.rows,
          sequences, drop.seq_len);
  return sequences;
}

}  // namespace lyceum
