#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "config/feature.h"
#include "kernels/gemm_choice_method.h"

namespace lyceum {

enum class DeviceKind { automatic, cpu, cuda };
constexpr auto names_of(DeviceKind) { return std::array{"auto", "cpu", "cuda"}; }

enum class Precision { f32, bf16 };
constexpr auto names_of(Precision) { return std::array{"f32", "bf16"}; }

constexpr auto names_of(GemmChoiceMethod) { return std::array{"heuristic", "timed"}; }

/// [run]: folder, duration and device of a training run, and what it prints and checks.
struct RunConfig {
  std::string dir = "runs/default";
  std::int64_t steps = 1000;
  std::uint64_t seed = 1;
  DeviceKind device = DeviceKind::automatic;
  Precision precision = Precision::f32;
  int threads = 0;                         // OpenMP threads per rank; 0: the node's cores divided among its ranks
  std::int64_t log_every = 0;              // steps between console lines; 0: chosen by log_every_of()
  std::int64_t metrics_every = 1;          // steps between lines of metrics.jsonl; some steps always have one
  std::int64_t layer_metrics_every = 100;  // steps between measurements of the layers, see LayerMetrics; 0: none
  double timeout_seconds = 600;            // limit of a wait for another rank
  /// Steps between comparisons of the weights that several ranks hold. If above 0, each update also checks that memory
  /// has not changed since the last one. 0: neither is checked.
  std::int64_t audit_every = 10;
  std::int64_t replay_every = 1000;  // steps between those whose gradients are computed twice and compared; 0: none
  std::int64_t rollback = 0;         // how often an unsound run may return to a sound checkpoint
  bool cuda_graph = true;            // record the step of a single rank once, then launch it as a CUDA graph
  GemmChoiceMethod gemm_choice = GemmChoiceMethod::heuristic;
  std::string gemm_file;     // gemm.json of another run, for gemm_choice = timed
  bool tensorboard = false;  // write events to dir/tensorboard
  std::string prometheus;    // file that receives the metrics of the latest step as text; empty: none
  std::string trace_steps;   // "A-B": the steps whose trace is written to dir/trace; "A": one step; empty: none
};

/// A range of steps, from 1 on, both included.
struct TracedSteps {
  std::int64_t first = 0, last = 0;
};
/// The largest number of steps of a trace; more would make files that no viewer opens.
constexpr std::int64_t most_traced_steps = 100;
/// Returns the steps of run.trace_steps; nothing if it is empty or not of the form A or A-B with 1 ≤ A ≤ B.
std::optional<TracedSteps> traced_steps(const RunConfig& run);

/// Returns the steps between console lines. If log_every is 0, a short run prints one line per step.
inline std::int64_t log_every_of(const RunConfig& run) {
  if (run.log_every > 0) return run.log_every;
  return run.steps <= 200 ? 1 : 10;
}

/// Returns the steps between measurements of the layers: run.layer_metrics_every, raised to a multiple of
/// run.metrics_every, since only steps with a line in metrics.jsonl are measured; 0: none.
inline std::int64_t layer_metrics_every_of(const RunConfig& run) {
  return (run.layer_metrics_every + run.metrics_every - 1) / run.metrics_every * run.metrics_every;
}

void declare_keys(ConfigKeys& keys, RunConfig& run);
void check_run(Findings& findings, const RunConfig& run);
/// Adds a finding if this build does not support the device.
void check_device(Findings& findings, const RunConfig& run);
/// Replaces device `auto` by the GPU if there is one, else by the CPU.
void derive_device(RunConfig& run);

}  // namespace lyceum
