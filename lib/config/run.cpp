#include "config/run.h"

#include <charconv>
#include <system_error>

#include "config/findings.h"
#include "config/keys.h"
#include "core/gpu.h"

namespace lyceum {

void declare_keys(ConfigKeys& keys, RunConfig& run) {
  using enum KeyRole;
  const KeySection key(keys, operation);
  key("run.dir", &run.dir, {.required = true}, "folder that the run writes to",
      {.other_names = {"output_dir", "out_dir", "save_dir"}});
  key("run.steps", &run.steps, {.low = 1}, "total number of optimizer steps",
      {.other_names = {"max_steps", "max_iters", "train_iters", "num_train_steps", "total_steps"}});
  key("run.seed", &run.seed, {}, "seed of initial weights and data order", {.role = identity});
  key("run.device", &run.device, "device that kernels run on");
  key("run.precision", &run.precision, "type of weights and activations",
      {.role = tuning, .other_names = {"dtype", "torch_dtype", "bf16", "fp16"}});
  key("run.threads", &run.threads, {.low = 0, .high = 4096},
      "threads per rank; 0: the node's cores divided among its ranks", {.other_names = {"num_threads"}});
  key("run.log_every", &run.log_every, {.low = 0},
      "steps between console lines; 0: 1 in a run of up to 200 steps, else 10",
      {.other_names = {"log_interval", "logging_steps"}});
  key("run.layer_metrics_every", &run.layer_metrics_every, {.low = 0},
      "steps between records of the norms of each layer's weights, gradients and activations, raised to a multiple of "
      "run.metrics_every; 0: none");
  key("run.metrics_every", &run.metrics_every, {.low = 1},
      "steps between lines of metrics.jsonl and points for TensorBoard; more for starts, validations, saves and "
      "skipped steps");
  key("run.timeout_seconds", &run.timeout_seconds, {.low = 0, .high = 1e9, .low_open = true},
      "longest wait for another rank", {.other_names = {"distributed_timeout_minutes"}});
  key("run.audit_every", &run.audit_every, {.low = 0},
      "steps between comparisons of the weights that several ranks hold; if above 0, each update also checks memory");
  key("run.replay_every", &run.replay_every, {.low = 0},
      "steps between checks that compute the gradients again, also on another rank if possible, and compare them; 0: "
      "never");
  key("run.rollback", &run.rollback, {.low = 0},
      "how many times an unsound run may return to a sound checkpoint and skip the data since then");
  key("run.cuda_graph", &run.cuda_graph, {}, "on a single rank: launch a step on its GPU as one CUDA graph");
  key("run.gemm_choice", &run.gemm_choice,
      "on GPUs: for a matrix product use the first algorithm that cuBLASLt proposes, or the fastest of its proposals",
      {.role = reported});
  key("run.gemm_file", &run.gemm_file, {}, "initial algorithms for timed: gemm.json in another run's folder");
  key("run.tensorboard", &run.tensorboard, {}, "also write metrics to run.dir/tensorboard");
  key("run.prometheus", &run.prometheus, {},
      "NAME.prom file for node_exporter's textfile collector, with the metrics of the latest step");
  key("run.trace_steps", &run.trace_steps, {},
      "A-B: write a timeline of these steps, for Perfetto, to run.dir/trace; empty: none");
}

std::optional<TracedSteps> traced_steps(const RunConfig& run) {
  TracedSteps steps;
  const char* const end = run.trace_steps.data() + run.trace_steps.size();
  auto [at, error] = std::from_chars(run.trace_steps.data(), end, steps.first);
  if (error != std::errc()) return std::nullopt;
  steps.last = steps.first;
  if (at != end && *at == '-') {
    const auto second = std::from_chars(at + 1, end, steps.last);
    if (second.ec != std::errc()) return std::nullopt;
    at = second.ptr;
  }
  if (at != end || steps.first < 1 || steps.last < steps.first) return std::nullopt;
  return steps;
}

void check_run(Findings& findings, const RunConfig& run) {
  findings.unless(run.prometheus.empty() || run.prometheus.ends_with(".prom"),
                  "run.prometheus = {}: the name must end with .prom, since node_exporter reads only such files",
                  run.prometheus);
  const std::optional<TracedSteps> traced = traced_steps(run);
  findings.unless(run.trace_steps.empty() || traced,
                  "run.trace_steps = {}: expected the first and the last step, such as 20-22", run.trace_steps);
  findings.unless(!traced || traced->first <= run.steps, "run.trace_steps = {}: the run ends with step {} (run.steps)",
                  run.trace_steps, run.steps);
  findings.unless(!traced || traced->last - traced->first < most_traced_steps,
                  "run.trace_steps = {}: a trace can have at most {} steps", run.trace_steps, most_traced_steps);
  findings.unless(run.gemm_file.empty() || run.gemm_choice == GemmChoiceMethod::timed,
                  "run.gemm_file = {} has no effect without run.gemm_choice = timed", run.gemm_file);
}

void check_device(Findings& findings, const RunConfig& run) {
  findings.unless(built_with_cuda || run.device != DeviceKind::cuda,
                  "run.device = cuda: this build has no CUDA; set run.device = cpu, or build with -DLYCEUM_CUDA=ON");
}

void derive_device(RunConfig& run) {
  if (run.device == DeviceKind::automatic) run.device = gpu_count() > 0 ? DeviceKind::cuda : DeviceKind::cpu;
}

}  // namespace lyceum
