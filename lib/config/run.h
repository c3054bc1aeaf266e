#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "config/feature.h"
#include "kernels/gemm_choosing.h"

namespace lyceum {

enum class DeviceKind { automatic, cpu, cuda };
constexpr auto names_of(DeviceKind) { return std::array{"auto", "cpu", "cuda"}; }

enum class Precision { f32, bf16 };
constexpr auto names_of(Precision) { return std::array{"f32", "bf16"}; }

constexpr auto names_of(GemmChoosing) { return std::array{"heuristic", "timed"}; }

/// [run]: where and how long a run trains, and what it prints and checks.
struct RunConfig {
  std::string dir = "runs/default";
  std::int64_t steps = 1000;
  std::uint64_t seed = 1;
  DeviceKind device = DeviceKind::automatic;
  Precision precision = Precision::f32;
  int threads = 0;                   // OpenMP threads of a rank; 0: the node's cores shared among its ranks
  std::int64_t log_every = 0;        // steps between console lines; 0: as log_every_of() chooses
  double timeout_seconds = 600;      // longest wait for another rank
  std::int64_t audit_every = 10;     // steps between comparisons of copies; 0: memory is not checked at all
  std::int64_t replay_every = 1000;  // steps between those that are computed again; 0: none
  std::int64_t rollback = 0;         // how often an unsound run may return to a sound checkpoint
  bool cuda_graph = true;            // a step of a single rank is recorded once, then launched as a whole
  GemmChoosing gemm_choice = GemmChoosing::heuristic;
  std::string gemm_file;     // gemm.json of another run, for gemm_choice = timed
  bool tensorboard = false;  // write events to dir/tensorboard
  std::string prometheus;    // text file of the latest step; empty: none
};

/// Returns the steps between console lines. If log_every is 0, a short run prints one line per step.
inline std::int64_t log_every_of(const RunConfig& run) {
  if (run.log_every > 0) return run.log_every;
  return run.steps <= 200 ? 1 : 10;
}

void declare_keys(ConfigKeys& keys, RunConfig& run);
void check_run(Findings& findings, const RunConfig& run);
/// Finds a device that this build does not have.
void check_device(Findings& findings, const RunConfig& run);
/// Chooses the GPU, if there is one, for the device `auto`.
void derive_device(RunConfig& run);

}  // namespace lyceum
