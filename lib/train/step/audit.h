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

/// The advice to the user for a fault that was found before it affected any checkpoint.
inline constexpr std::string_view advice_on_fresh_faults =
    "no checkpoint is affected: run the same command again, without that machine if it happens again";
/// Returns the advice to the user for a fault that may have affected all steps after `step`, the last step at which a
/// check found nothing.
std::string advice_on_old_faults(std::int64_t step);

/// Collective over `group`, whose ranks all hold complete copies of `units`. Throws an Error that names the ranks and
/// the parameter if the copies differ in any bit. `last`: the last step at which they were found equal, for the
/// message.
void require_equal_copies(const Stream& stream, const ProcessGroup& group, std::span<const ParameterUnit* const> units,
                          std::int64_t last);

/// The digests of all gradients of a step, to compare them with those of the same step computed again.
class GradientDigests {
 public:
  /// Appends a digest. `gradient`: names the gradient, and is the result of difference() if its digest differs.
  void add(Finding gradient, std::uint64_t digest);
  /// Returns the differing gradient that says most about the cause, or a Finding of kind `none` if all digests are
  /// equal. Throws if `other` has another number of gradients.
  Finding difference(const GradientDigests& other) const;
  /// Collective over `group`. Each rank r has computed its own gradients, with the digests `*this`, and again the
  /// gradients of rank r + shift (modulo the group's size), with the digests `of_other`. Compares `of_other` with the
  /// digests of that rank, except those of sums over copies. Returns the difference on this rank that says most about
  /// the cause, or a Finding of kind `none`.
  Finding difference(const ProcessGroup& group, int shift, const GradientDigests& of_other) const;

 private:
  struct Entry {  // a digest that was added
    Finding gradient;
    std::uint64_t digest;
  };
  /// Returns the digests of all gradients but the sums over copies, in the order of add().
  std::vector<std::uint64_t> without_sums() const;

  std::vector<Entry> entries_;
};

}  // namespace lyceum
