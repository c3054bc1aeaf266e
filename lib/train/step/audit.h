#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/parameter.h"
#include "parallel/comm/process_group.h"
#include "train/step/finding.h"

namespace lyceum {

/// Advice for a fault that was found before any result was affected.
inline constexpr std::string_view advice_on_fresh_faults =
    "no checkpoint is affected: run the same command again, without that machine if it happens again";
/// Advice for a fault that may have affected steps after `step`, the last check.
std::string advice_on_old_faults(std::int64_t step);

/// Collective over a group whose ranks hold copies of these units, whole: throws an Error that names ranks and
/// parameter unless all have the same bits. `last`: the step after which they had.
void require_equal_copies(const Stream& stream, const ProcessGroup& group, std::span<const ParameterUnit* const> units,
                          std::int64_t last);

/// Gradients of a step by their digests, to compare with those of the same step computed again.
class GradientDigests {
 public:
  /// Of the gradient that `place` names.
  void add(Finding place, std::uint64_t digest);
  /// What differs in the other and says most of the cause; none where nothing does.
  Finding difference(const GradientDigests& other) const;
  /// Collective over a group whose rank r computed the gradients of rank r + shift (modulo its size), `of_other`,
  /// beside its own: what of them is not what that rank computed. Sums over copies are left out.
  Finding difference(const ProcessGroup& group, int shift, const GradientDigests& of_other) const;

 private:
  struct Seen {
    Finding place;
    std::uint64_t digest;
  };
  std::vector<std::uint64_t> without_sums() const;

  std::vector<Seen> seen_;
};

}  // namespace lyceum
