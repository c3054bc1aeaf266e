#include "plan/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/text/console.h"
#include "io/text/table.h"
#include "model/counts.h"
#include "plan/memory.h"
#include "plan/nccl_memory.h"
#include "plan/text.h"

namespace lyceum {

namespace {

constexpr int most_chart_rows = 16, most_chart_passes = 6;

/// Formats the times of a table in one unit: milliseconds if all are below one second, else seconds.
class TimeUnit {
 public:
  explicit TimeUnit(double most) : milli_(most < 1) {}
  std::string text(double seconds) const { return fmt::format("{:.2f}", milli_ ? 1e3 * seconds : seconds); }
  std::string heading(const char* name) const { return fmt::format(">{} {}", name, milli_ ? "ms" : "s"); }

 private:
  bool milli_;
};

/// Returns the planned rank that sends the most bytes.
const RankPlan& busiest(const MeshPlan& plan) {
  return *std::ranges::max_element(plan.ranks, {}, [](const RankPlan& rank) { return rank.traffic().bytes(); });
}

std::string traffic_table(const MeshPlan& plan) {
  const RankPlan& rank = busiest(plan);
  const Traffic traffic = rank.traffic();
  const MeshRank mesh_rank = MeshRank::of(plan.config.parallel, plan.world, rank.rank);
  std::vector<std::string> headings{"group", ">ranks"};
  for (const std::string_view name : transfer_names) headings.push_back(fmt::format(">{}", name));
  headings.emplace_back(">all");
  Table table(headings);
  for (std::size_t a = 0; a < axis_names.size(); ++a) {
    const auto axis = static_cast<Axis>(a);
    if (traffic.bytes(axis) == 0) continue;
    std::vector<std::string> row{std::string(axis_names[a]), fmt::format("{}", mesh_rank.size(axis))};
    for (std::size_t t = 0; t < transfer_names.size(); ++t) {
      row.push_back(bytes_text(traffic.of(axis, static_cast<Transfer>(t)).bytes));
    }
    row.push_back(bytes_text(traffic.bytes(axis)));
    table.add(std::move(row));
  }
  if (traffic.bytes() == 0) return ": none, there is one rank\n";
  return fmt::format(" of rank {}\n", rank.rank) + table.text();
}

std::string pipeline_text(const MeshPlan& plan) {
  const ParallelConfig& parallel = plan.config.parallel;
  const Timeline& timeline = plan.timeline;
  std::string text = fmt::format(
      "{} of ranks, {}, {}, schedule {}: ranks wait {:.1f} % of the time (bubble, including the imbalance of "
      "stages)\n",
      count_text(parallel.pipeline, "row"), count_text(parallel.pipeline * parallel.virtual_stages, "stage"),
      count_text(timeline.shape.microbatches, "micro-batch"), name_of(parallel.schedule), 100 * plan.bubble());
  if (parallel.pipeline > most_chart_rows) {
    return text + "too many rows to draw here: use --svg FILE\n";
  }
  const Timeline drawn = drawn_timeline(plan, most_chart_passes);
  if (drawn.shape.microbatches < timeline.shape.microbatches) {
    text += fmt::format("shown with {} of the micro-batches:\n", drawn.shape.microbatches);
  }
  double forward = 0;  // a column of the grid: the mean duration of a forward pass
  for (const StageCosts& stage : plan.costs.stages)
    forward += stage.forward / static_cast<double>(plan.costs.stages.size());
  return text + text_grid(drawn, forward);
}

std::string time_table(const MeshPlan& plan, const Cluster& cluster) {
  const StepTime& time = *plan.time;
  const TimeUnit unit(time.total());
  Table table({"", unit.heading("time"), ">share", "description"});
  const auto add = [&](const char* name, double seconds, const char* what) {
    table.add({name, unit.text(seconds), fmt::format("{:.1f} %", 100 * seconds / time.total()), what});
  };
  add("compute", time.compute, "arithmetic of the slowest pipeline stage");
  add("transfers", time.transfers,
      "data exchanged within a pass, if not hidden: between tensor ranks, tokens to experts and back");
  add("bubble", time.bubble, "waiting for other pipeline stages");
  add("copies", time.synchronising,
      "gradients and weights exchanged between copies of the model, if not hidden behind compute");
  add("optimizer", time.optimizer, "weight update, gradient norm, sums of losses");
  if (time.muon > 0) add("muon", time.muon, "products that orthogonalise matrices, and the exchange of matrices");
  add("step", time.total(), "");
  const double flops =
      count_model(plan.config).causal_flops_per_sequence * static_cast<double>(plan.config.batch.global);
  const auto rate = [](double value) { return human_count(std::floor(value)); };
  return table.text() +
         fmt::format("{} tokens/s; {}FLOP/s per rank of the {}FLOP/s that {} reaches in matrix products\n",
                     rate(plan.tokens_per_second()), rate(flops / time.total() / plan.world), rate(cluster.flops),
                     cluster.name);
}

std::string training_line(const MeshPlan& plan, const Training& training) {
  return fmt::format("{} tokens: {} on {}, {} {}-hours\n", human_count(training.tokens),
                     human_duration(training.seconds), count_text(plan.world, "rank"),
                     human_count(training.device_hours), plan.config.run.device == DeviceKind::cpu ? "rank" : "GPU");
}

}  // namespace

std::string model_report(const Config& config) {
  const ModelCounts counts = count_model(config);
  Table table({"part", ">parameters", ">activated"});
  const auto add = [&](const char* name, const Count& count) {
    if (count.total == 0) return;
    table.add({name, human_count(static_cast<double>(count.total)), human_count(static_cast<double>(count.activated))});
  };
  const BlockCounts& blocks = counts.blocks;
  add("embedding", counts.embedding);
  add("attention", blocks.attention);
  add("dense FFNs", blocks.ffn);
  add("shared experts", blocks.shared);
  add("routed experts", blocks.routed);
  add("latent projections", blocks.latent);
  add("routers", blocks.routers);
  add("fusion", blocks.fusion);
  add("norms", blocks.norms);
  add("norm and head", counts.output);
  add("all", {counts.parameters, counts.activated});
  add("prediction modules", counts.modules);
  return fmt::format(
      "model\n{}\nFLOPs of a sequence of {} tokens, forward and backward: {} with full attention, {} with causal "
      "attention counted half\nkey-value cache of such a sequence in generation: {}\n",
      table.text(), config.batch.seq_len, human_count(counts.flops_per_sequence, "FLOP"),
      human_count(counts.causal_flops_per_sequence, "FLOP"), bytes_text(cache_bytes(config)));
}

Training::Training(const MeshPlan& plan, double tokens, std::span<const StagePlan> stages)
    : tokens(tokens),
      seconds(stages.empty() ? tokens / plan.tokens_per_second() : seconds_of_run(stages, tokens)),
      device_hours(seconds / 3600 * plan.world) {}

std::string mesh_report(const MeshPlan& plan, const std::optional<Cluster>& cluster, double tokens,
                        std::span<const StagePlan> stages) {
  const BatchConfig& batch = plan.config.batch;
  std::string text =
      fmt::format("\nmesh of {}: {}\n({})\n{} of {} tokens per step, {} of {} per rank\n",
                  count_text(plan.world, "rank"), plan.text(), mesh_legend, count_text(batch.global, "sequence"),
                  batch.seq_len, count_text(plan.timeline.shape.microbatches, "micro-batch"), batch.micro);
  text +=
      "\npeak memory per rank, without scratch memory of kernels: for each pipeline row, the rank that needs most\n" +
      memory_table(plan);
  if (const double most = unlimited_nccl_bytes(plan, cluster.has_value()); most > 0) {
    text += fmt::format(
        "not counted: memory of NCCL, which may take up to {} with {} channels per communicator; "
        "parallel.nccl_channels limits it\n",
        bytes_text(most), most_nccl_channels);
  }
  text += "\nbytes sent per step" + traffic_table(plan);
  if (plan.config.parallel.pipeline > 1) text += "\npipeline: " + pipeline_text(plan);
  if (plan.time) {
    text += "\nstep on " + cluster->name + "\n" + time_table(plan, *cluster);
  }
  text += stages_report(stages);
  if (plan.time) text += training_line(plan, Training(plan, tokens, stages));
  return text;
}

std::string search_report(const SearchResult& result, int world, const Cluster& cluster) {
  double most = 0;
  for (const Candidate& candidate : result.best) most = std::max(most, candidate.plan.time->total());
  const TimeUnit unit(most);
  Table table({"", unit.heading("step"), unit.heading("compute"), unit.heading("transfers"), unit.heading("bubble"),
               unit.heading("copies"), unit.heading("optimizer"), ">memory", "vs. the best", "mesh"});
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    const Candidate& candidate = result.best[i];
    const StepTime& time = *candidate.plan.time;
    table.add({fmt::format("{}", i + 1), unit.text(time.total()), unit.text(time.compute), unit.text(time.transfers),
               unit.text(time.bubble), unit.text(time.synchronising), unit.text(time.optimizer),
               bytes_text(candidate.plan.peak_memory()), i == 0 ? "" : candidate.reason, candidate.plan.text()});
  }
  return fmt::format("\nbest meshes of {} on {}: {} considered, {} of them too large for {}\n{}\nbest: {}\n",
                     count_text(world, "rank"), cluster.name, result.considered, result.too_large,
                     bytes_text(cluster.memory), table.text(), result.best.front().reason);
}

}  // namespace lyceum
