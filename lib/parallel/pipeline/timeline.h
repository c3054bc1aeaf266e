#pragma once

#include <span>
#include <string>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace lyceum {

/// An action with its start and end, in seconds from the beginning of the step (or in units of the simulated costs).
struct TimedAction {
  Action action;
  double start, end;
};

/// The timeline of a step, simulated or measured by an executor.
struct Timeline {
  PipelineShape shape;
  std::vector<std::vector<TimedAction>> ranks;  // the actions of each rank, in program order

  /// Returns the time until the last rank has finished.
  double makespan() const;
  /// Returns the total time in which a rank computes.
  double busy(int rank) const;
  /// Return the idle time of one rank divided by the makespan, and the average of this over the ranks. For 1F1B and
  /// GPipe with equal costs, p ranks and m micro-batches it is (p−1)/(m+p−1).
  double bubble_fraction(int rank) const;
  double bubble_fraction() const;
  /// Returns the bubble as defined in the literature: idle time divided by busy time, summed over all ranks. With equal
  /// costs it is (p−1)/m for 1F1B and GPipe, and (p−1)/(v·m) for `interleaved` with v stages per rank.
  double bubble_ratio() const;
};

/// The activations that forward keeps for one micro-batch in one stage: in bytes, or 1 each to count micro-batches.
struct SavedActivations {
  double until_input_gradient = 1;   // all that the backward pass needs
  double until_weight_gradient = 1;  // the part that remains until the weight gradients are computed
};
/// Returns the peak of the activations that a rank keeps, in the unit of `stages`; it depends only on the order of the
/// rank's program. `stages` has one element per stage of the whole pipeline.
double peak_activations(std::span<const Action> program, std::span<const SavedActivations> stages);
/// Returns the maximum number of micro-batches whose activations a rank keeps at a time. A micro-batch counts once for
/// each stage of the rank that keeps it.
int peak_in_flight(std::span<const Action> program);

/// Returns a grid of characters with one row per rank and one column per `unit` of time; dots mark idle time. The first
/// column of an action shows its name, its other columns dashes. `unit` 0: the duration of the shortest action. Actions
/// shorter than half a unit may be omitted. Throws a usage Error if the grid has more than 10,000 columns.
std::string text_grid(const Timeline& timeline, double unit = 0);

}  // namespace lyceum
