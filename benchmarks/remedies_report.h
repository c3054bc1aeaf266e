#pragma once

#include <nlohmann/json.hpp>

#include <vector>

#include "expert_loads.h"
#include "expert_remedies.h"

namespace lyceum {

/// Returns the remedies that are compared, the last of which has forced balance.
const std::vector<Remedy>& remedies();

/// The results of one remedy.
struct Series {
  std::vector<StepResult> steps;
  std::vector<MoveResult> moves;

  /// Returns the seconds of each step, with its share of the mean time of a move, if experts move after every `every`
  /// steps.
  std::vector<double> seconds(std::int64_t every) const {
    std::vector<double> all;
    for (const StepResult& step : steps) {
      all.push_back(step.seconds + mean(&MoveResult::seconds) / static_cast<double>(every));
    }
    return all;
  }
  /// Returns the mean over the steps.
  EmulatedExperts::ReplicaTime replica_time() const {
    EmulatedExperts::ReplicaTime sum;
    const auto add = [&](const EmulatedExperts::ReplicaTime& time) {
      sum.choosing += time.choosing / static_cast<double>(steps.size());
      sum.weights += time.weights / static_cast<double>(steps.size());
      sum.gradients += time.gradients / static_cast<double>(steps.size());
    };
    for (const StepResult& step : steps) add(step.replica_time);
    return sum;
  }
  /// Returns the mean over the steps of a member of StepResult.
  template <class T>
  double mean(T StepResult::*member) const {
    double sum = 0;
    for (const StepResult& step : steps) sum += static_cast<double>(step.*member);
    return sum / static_cast<double>(steps.size());
  }
  template <class T>
  double mean(T MoveResult::*member) const {
    double sum = 0;
    for (const MoveResult& move : moves) sum += static_cast<double>(move.*member);
    return moves.empty() ? 0 : sum / static_cast<double>(moves.size());
  }
};

/// The results of all remedies under one load.
struct Measurement {
  StepShape shape;
  std::vector<Series> series;    // of remedies()
  double emulated = 0;           // mean seconds of emulated computation of a rank in a step
  double even_remote_ranks = 0;  // to which a token is sent with even routing, mean
};

/// Prints a table of the results, and returns them. See hot_experts.cpp for the columns.
nlohmann::ordered_json report(const RoutingLoad& load, const Measurement& measured, int ranks);

}  // namespace lyceum
