#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/parameter.h"
#include "parallel/comm/process_group.h"
#include "train/finding.h"

namespace lyceum {

/// Digests of a flat tensor's blocks, see DigestBlocks. Waits for the stream.
std::vector<std::uint64_t> block_digests(const Stream& stream, const Tensor& values);
/// Of all its elements.
std::uint64_t digest_of(const Stream& stream, const Tensor& values);

/// Collective over a group whose ranks hold copies of these units, whole: throws an Error that names ranks and
/// parameter unless all have the same bits.
void require_equal_copies(const Stream& stream, const ProcessGroup& group, std::span<const ParameterUnit* const> units);

/// What whoever reads of a fault should do.
inline constexpr std::string_view advice_on_faults =
    "no checkpoint has it: run the same command again, without that machine if it happens again";

/// Gradients of a step by their digests, to compare with those of the same step computed again.
class GradientDigests {
 public:
  /// A gradient that is seen at this place of the step. `order`: as in Finding.
  void add(Finding::Kind kind, std::int64_t order, std::string what, std::uint64_t digest);
  /// What differs in the other and says most of the cause; none where nothing does.
  Finding difference(const GradientDigests& other) const;

 private:
  struct Seen {
    Finding place;
    std::uint64_t digest;
  };
  std::vector<Seen> seen_;
};

}  // namespace lyceum
