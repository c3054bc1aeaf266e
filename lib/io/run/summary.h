#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/run/curve.h"
#include "io/run/metric_lines.h"

namespace lyceum {

/// The metrics that a comparison shows as curves.
enum class CurveKind { loss, valid_loss, grad_norm, tokens_per_second, max_violation, idle_experts };
inline constexpr std::array all_curves{CurveKind::loss,          CurveKind::valid_loss,
                                       CurveKind::grad_norm,     CurveKind::tokens_per_second,
                                       CurveKind::max_violation, CurveKind::idle_experts};

/// A validation loss and the step after which it was computed.
struct ValidLoss {
  std::int64_t step = 0;
  double loss = 0;
};

/// The state of a run at a number of steps or tokens that other runs have reached, too.
struct Milestone {
  std::int64_t at = 0;  // steps or tokens
  /// Mean of the finite losses in the last 5 % before `at`, in nats per token; if no step ends there, the loss of the
  /// last step before. Nothing if the run has not reached `at`, NaN if no loss is finite.
  std::optional<double> loss = {};
  std::optional<ValidLoss> valid = {};  // the last one at or before `at`
};

/// The results of a run according to its metrics file. A number is missing if the file does not have its key, as files
/// of older versions may not.
struct RunSummary {
  std::int64_t steps = 0;              // number of the last step; 0 if there is none
  std::optional<double> tokens = {};   // tokens trained on
  std::optional<double> seconds = {};  // sum of the durations of steps
  std::vector<Milestone> at_steps = {}, at_tokens = {};
  // Means over the last 5 % of the run's steps.
  std::optional<double> loss = {}, grad_norm = {}, max_violation = {}, idle_experts = {};
  std::optional<ValidLoss> last_valid = {}, lowest_valid = {};
  // Medians over all steps; mfu from 0 to 1.
  std::optional<double> tokens_per_second = {}, step_ms = {}, mfu = {};
  std::optional<double> skipped = {}, rollbacks = {}, dead_experts = {};  // at the last step
  std::optional<double> peak_bytes = {};                                  // largest memory of rank 0's tensors
  std::optional<double> resident_bytes = {};                              // largest host memory of rank 0's process
  std::int64_t not_finite = 0;  // steps whose loss or gradient norm was not finite
  std::map<CurveKind, RunCurve> curves = {};
};

/// Reads a metrics file once more after measure_metrics() gave `extent`, and evaluates it at these numbers of steps and
/// of tokens. Memory does not grow with the number of steps. Throws as for_each_step() does.
RunSummary summarize_run(const std::filesystem::path& file, const MetricsExtent& extent,
                         std::span<const std::int64_t> at_steps, std::span<const std::int64_t> at_tokens);

/// Returns an eighth, a quarter, half and the whole of the steps that all runs have made, without repetitions and
/// zeros. Runs without steps are left out; empty if no run has any. The second function does the same for tokens, and
/// leaves out runs with an unknown number of tokens.
std::vector<std::int64_t> common_steps(std::span<const MetricsExtent> runs);
std::vector<std::int64_t> common_tokens(std::span<const MetricsExtent> runs);

}  // namespace lyceum
