#include "parallel/pipeline/simulate.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "parallel/pipeline/schedule_text.h"

namespace lyceum {
namespace {

using Kind = Action::Kind;
constexpr double never = std::numeric_limits<double>::infinity();

class Simulation {
 public:
  Simulation(const Schedule& schedule, const Costs& costs)
      : schedule_(schedule),
        shape_(schedule.shape),
        costs_(costs),
        finished_(2 * table_size(shape_), never),
        arrived_(table_size(shape_), never),
        next_(schedule.programs.size(), 0),
        clock_(schedule.programs.size(), 0.0) {
    timeline_.shape = shape_;
    timeline_.ranks.resize(schedule.programs.size());
    for (const Program& program : schedule.programs) {
      for (const Action& a : program) {
        const bool inside =
            a.stage >= 0 && a.stage < shape_.stages() && a.microbatch >= 0 && a.microbatch < shape_.microbatches;
        if (inside) continue;  // the common case; `text()` below is expensive
        fail(ExitCode::failed, "{} does not exist in a pipeline of {} stages and {} micro-batches", text(a, shape_),
             shape_.stages(), shape_.microbatches);
      }
      has_sends_ = has_sends_ || std::any_of(program.begin(), program.end(), [](const Action& a) {
                     return a.kind == Kind::send_activation || a.kind == Kind::send_gradient;
                   });
    }
  }

  Timeline run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < next_.size(); ++rank) {
        while (step(rank)) moved = true;
      }
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] < schedule_.programs[rank].size()) fail_stuck(rank);
    }
    return std::move(timeline_);
  }

 private:
  /// Returns the time when `kind` has ended for the action's stage and micro-batch; `never` if it has not.
  double& finished(Kind kind, const Action& action) {
    const int row = static_cast<int>(kind) * shape_.stages() + action.stage;
    return finished_[static_cast<std::size_t>(row) * static_cast<std::size_t>(shape_.microbatches) +
                     static_cast<std::size_t>(action.microbatch)];
  }

  double input_gradient_finished(const Action& action) {
    return std::min(finished(Kind::backward, action), finished(Kind::backward_input, action));
  }

  /// Returns the time when this rank has completed the actions that must precede this one.
  double own_ready(const Action& action) {
    switch (action.kind) {
      case Kind::backward:
      case Kind::backward_input:
      case Kind::send_activation: return finished(Kind::forward, action);
      case Kind::backward_weight: return finished(Kind::backward_input, action);
      case Kind::send_gradient: return input_gradient_finished(action);
      default: return 0;
    }
  }

  /// Returns the time when the data that the action needs from another stage is available.
  double handover_ready(const Action& action) {
    const auto needed = needed_by(action, shape_);
    return needed ? arrived_[table_index(*needed, shape_)] : 0;
  }

  double cost(const Action& action) const {
    const StageCosts& stage = costs_.stages[static_cast<std::size_t>(action.stage)];
    switch (action.kind) {
      case Kind::forward: return stage.forward;
      case Kind::backward: return stage.backward_input + stage.backward_weight;
      case Kind::backward_input: return stage.backward_input;
      case Kind::backward_weight: return stage.backward_weight;
      default: return 0;
    }
  }

  /// Simulates the rank's next action. False if it has none, or if the action still waits for another rank.
  bool step(std::size_t rank) {
    if (next_[rank] == schedule_.programs[rank].size()) return false;
    const Action& action = schedule_.programs[rank][next_[rank]];
    const double ready = std::max(own_ready(action), handover_ready(action));
    if (ready == never) return false;
    const double start = std::max(clock_[rank], ready), end = start + cost(action);
    ++next_[rank];
    clock_[rank] = end;
    timeline_.ranks[rank].push_back({action, start, end});
    if (action.computes()) {
      finished(action.kind, action) = end;
      if (const auto made = made_by(action, shape_)) {
        const bool crosses = crosses_ranks(*made, shape_);
        if (!crosses || !has_sends_) arrived_[table_index(*made, shape_)] = end + (crosses ? costs_.transfer : 0);
      }
    } else if (action.kind == Kind::send_activation || action.kind == Kind::send_gradient) {
      arrived_[table_index(moved_by(action), shape_)] = end + costs_.transfer;
    }
    return true;
  }

  [[noreturn]] void fail_stuck(std::size_t rank) {
    const Action& action = schedule_.programs[rank][next_[rank]];
    std::string cause;
    if (own_ready(action) == never) {
      cause = action.kind == Kind::backward_weight ? "its own I has not run" : "its own F has not run";
      if (action.kind == Kind::send_gradient) cause = "its own backward has not run";
    } else {
      const Handover needed = *needed_by(action, shape_);
      const auto from = static_cast<std::size_t>(shape_.rank_of(needed.from));
      const Program& program = schedule_.programs[from];
      cause = format_message("it waits for stage {}, rank {}, which ", {needed.from, from});
      cause += next_[from] < program.size() ? "is stuck at " + text(program[next_[from]], shape_) : "has finished";
    }
    fail(ExitCode::failed, "rank {} is stuck at {}: {}{}", rank, text(action, shape_), cause,
         excerpt(schedule_, static_cast<int>(rank), next_[rank]));
  }

  const Schedule& schedule_;
  const PipelineShape shape_;
  const Costs& costs_;
  std::vector<double> finished_;   // [kinds of computing actions][stages][micro-batches]
  std::vector<double> arrived_;    // time of arrival, by table_index(handover)
  std::vector<std::size_t> next_;  // index of the next action, by rank
  std::vector<double> clock_;      // end of the last action, by rank
  bool has_sends_ = false;
  Timeline timeline_;
};

}  // namespace

Costs equal_costs(const PipelineShape& shape, const StageCosts& stage, double transfer) {
  return {.stages = std::vector<StageCosts>(static_cast<std::size_t>(shape.stages()), stage), .transfer = transfer};
}

Timeline simulate(const Schedule& schedule, const Costs& costs) {
  require(costs.stages.size() == static_cast<std::size_t>(schedule.shape.stages()),
          "there are costs of {} stages for a pipeline of {}", costs.stages.size(), schedule.shape.stages());
  return Simulation(schedule, costs).run();
}

}  // namespace lyceum
