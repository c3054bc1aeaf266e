#pragma once

#include <span>
#include <string>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace lyceum {

/// An action and the time that it took, from the beginning of the step.
struct TimedAction {
  Action action;
  double start, end;
};

/// A step as it was simulated, or measured by an executor.
struct Timeline {
  PipelineShape shape;
  std::vector<std::vector<TimedAction>> ranks;  // in the order of the programs

  /// Until the last rank has finished.
  double makespan() const;
  /// Time that a rank computes.
  double busy(int rank) const;
  /// Idle time over the makespan: of a rank, and of all. 1F1B and GPipe with equal costs: (p−1)/(m+p−1).
  double bubble_fraction(int rank) const;
  double bubble_fraction() const;
  /// The literature's bubble: idle over busy time of all ranks. 1F1B and GPipe with equal costs: (p−1)/m; interleaved
  /// (p−1)/(v·m).
  double bubble_ratio() const;
};

/// What forward keeps of one micro-batch in one stage: bytes, or 1 to count.
struct Kept {
  double until_input_gradient = 1;   // all that backward needs
  double until_weight_gradient = 1;  // the part of it that weight gradients need
};
/// The most that a rank keeps at any time; it depends on the order of its program alone. `stages`: of every stage.
double peak_activations(std::span<const Action> program, std::span<const Kept> stages);
/// The most micro-batches in flight on a rank, counted for each of its stages.
int peak_in_flight(std::span<const Action> program);

/// A grid of characters: a row a rank, a column each `unit` of time, a dot where the rank is idle. An action's name
/// is in its first column, dashes in its others. `unit` 0: the time of the shortest action. What is shorter than
/// half a unit may be omitted.
std::string text_grid(const Timeline& timeline, double unit = 0);

}  // namespace lyceum
