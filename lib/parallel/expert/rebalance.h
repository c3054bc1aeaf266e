#pragma once

#include <optional>
#include <span>
#include <vector>

#include "parallel/expert/placement.h"

namespace lyceum {

/// Returns the cost of the busiest rank: the largest sum of the costs of a rank's experts. `costs` [experts].
double busiest_cost(const Placement& placement, std::span<const double> costs);
/// Returns the largest of `costs_by_rank` [ranks] divided by their mean; 1 if the mean is 0.
double busiest_over_mean(std::span<const double> costs_by_rank);
/// Returns busiest_cost() over the mean cost of the ranks; 1 if all costs are 0.
double busiest_over_mean(const Placement& placement, std::span<const double> costs);

/// Returns a placement with a lower busiest_cost() than `present`, or `present` itself if no exchange of two experts
/// lowers it. Experts change places in pairs: each one takes over the slot of another one of the same kind, so all
/// ranks keep their numbers of experts of each kind. `kinds` [experts]: experts of equal kind may exchange slots, for
/// example those of equal width. Costs must be finite and not negative. A pure function, so ranks with the same
/// arguments agree.
///
/// 1. The busiest rank exchanges one of its experts for a cheaper one of another rank, such that the busier of the two
///    ranks is left with as little as possible. This is repeated until no exchange relieves the busiest rank.
/// 2. Of these exchanges, only the first ones are made: as many as are needed for 95 % of the relief of all.
Placement rebalanced(const Placement& present, std::span<const double> costs, std::span<const int> kinds);

/// Returns rebalanced(), or nothing if that does not lower busiest_cost() by more than the fraction `gain`
/// (parallel.replace_gain).
std::optional<Placement> better_placement(const Placement& present, std::span<const double> costs,
                                          std::span<const int> kinds, double gain);

/// Returns a placement in which the first two experts of equal kind that are on different ranks have changed places;
/// `placement` itself if there are none.
Placement with_two_exchanged(Placement placement, std::span<const int> kinds);

/// Returns the experts that `after` assigns to another rank than `before`, in ascending order.
std::vector<std::int32_t> moved_experts(const Placement& before, const Placement& after);

}  // namespace lyceum
