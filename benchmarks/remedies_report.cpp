#include "remedies_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>

namespace lyceum {

namespace {

struct Quartiles {
  double median, spread;  // spread: interquartile range over the median
};

/// Quantiles between two values are interpolated, so the median of an even number is the mean of the middle two.
Quartiles quartiles(std::vector<double> values) {
  std::ranges::sort(values);
  const auto quantile = [&](double fraction) {
    const double place = fraction * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
  };
  const double median = quantile(0.5);
  return {median, (quantile(0.75) - quantile(0.25)) / median};
}

}  // namespace

const std::vector<Remedy>& remedies() {
  static const std::vector<Remedy> all{{.name = "none", .moves = false, .replicas = 0},
                                       {.name = "moves", .moves = true, .replicas = 0},
                                       {.name = "R = 1", .moves = false, .replicas = 1},
                                       {.name = "R = 2", .moves = false, .replicas = 2},
                                       {.name = "moves, R = 2", .moves = true, .replicas = 2},
                                       {.name = "balanced", .moves = false, .replicas = 0, .forced_balance = true}};
  return all;
}

nlohmann::ordered_json report(const RoutingLoad& load, const Measurement& measured, int ranks) {
  const std::vector<double> balanced = measured.series.back().seconds(measured.shape.every);
  double wall = 0, cpu = 0, late = 0;
  for (const Series& series : measured.series) {
    wall += series.mean(&StepResult::seconds);
    cpu += series.mean(&StepResult::cpu_seconds);
    late = std::max(late, series.steps.back().lateness);
  }
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const double use = cpu / wall / cores, share = measured.emulated / quartiles(balanced).median,
               rows = measured.series.front().mean(&StepResult::row_bytes) / ranks;
  fmt::print(
      "\n{}: {} experts, top {}, {} layers; an emulated rank has {:.1f} GFLOP/s and sends {:.2f} MB of rows per "
      "step\nCPU use {:.0f} %, late {:.1f} %, emulated computation {:.0f} % of a balanced step\n",
      load.name, load.experts(), load.top_k, load.layers, measured.shape.rate * 1e-9, rows * 1e-6, 100 * use,
      100 * late, 100 * share);
  fmt::print("{:<13} {:>8} {:>8} {:>9} {:>14} {:>8} {:>6} {:>8} {:>6} {:>13} {:>6}\n", "", "max/mean", "weights",
             "gradients", "replicas ms", "moves", "ms", "step ms", "spread", "balanced/step", "spread");
  nlohmann::ordered_json rows_of_json = nlohmann::ordered_json::array();
  for (std::size_t c = 0; c < measured.series.size(); ++c) {
    const Series& series = measured.series[c];
    const std::vector<double> seconds = series.seconds(measured.shape.every);
    std::vector<double> ratios;
    for (std::size_t i = 0; i < seconds.size(); ++i) ratios.push_back(balanced[i] / seconds[i]);
    const Quartiles step = quartiles(seconds), ratio = quartiles(ratios);
    const EmulatedExperts::ReplicaTime replicas = series.replica_time();
    fmt::print(
        "{:<13} {:>8.3f} {:>8.2f} {:>9.2f} {:>14} {:>8.2f} {:>6.0f} {:>8.1f} {:>5.1f}% {:>13.3f} {:>5.1f}%\n",
        remedies()[c].name, series.mean(&StepResult::imbalance), series.mean(&StepResult::weight_bytes) * 1e-6,
        series.mean(&StepResult::gradient_bytes) * 1e-6,
        fmt::format("{:.0f} {:.0f} {:.0f}", replicas.choosing * 1e3, replicas.weights * 1e3, replicas.gradients * 1e3),
        series.mean(&MoveResult::bytes) * 1e-6, series.mean(&MoveResult::seconds) * 1e3, step.median * 1e3,
        100 * step.spread, ratio.median, 100 * ratio.spread);
    rows_of_json.push_back({{"remedy", remedies()[c].name},
                            {"max_over_mean", series.mean(&StepResult::imbalance)},
                            {"replicas_per_step", series.mean(&StepResult::replicas)},
                            {"weight_bytes", series.mean(&StepResult::weight_bytes)},
                            {"weight_bytes_planned", series.mean(&StepResult::planned_weight_bytes)},
                            {"gradient_bytes", series.mean(&StepResult::gradient_bytes)},
                            {"gradient_bytes_planned", series.mean(&StepResult::planned_gradient_bytes)},
                            {"choosing_ms", replicas.choosing * 1e3},
                            {"weights_ms", replicas.weights * 1e3},
                            {"gradients_ms", replicas.gradients * 1e3},
                            {"row_bytes", series.mean(&StepResult::row_bytes)},
                            {"move_bytes", series.mean(&MoveResult::bytes)},
                            {"move_bytes_planned", series.mean(&MoveResult::planned_bytes)},
                            {"moved_experts", series.mean(&MoveResult::experts)},
                            {"move_ms", series.mean(&MoveResult::seconds) * 1e3},
                            {"moves", series.moves.size()},
                            {"step_ms", step.median * 1e3},
                            {"step_spread", step.spread},
                            {"balanced_over_step", ratio.median},
                            {"balanced_over_step_spread", ratio.spread}});
  }
  std::fflush(stdout);
  return {{"load", load.name},
          {"experts", load.experts()},
          {"top_k", load.top_k},
          {"layers", load.layers},
          {"ranks", ranks},
          {"cores", cores},
          {"emulated_gflops", measured.shape.rate * 1e-9},
          {"emulated_share", share},
          {"cpu_use", use},
          {"lateness", late},
          {"even_remote_ranks", measured.even_remote_ranks},
          {"remedies", rows_of_json}};
}

}  // namespace lyceum
