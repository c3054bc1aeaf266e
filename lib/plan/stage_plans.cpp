#include "plan/stage_plans.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/text/console.h"
#include "io/text/table.h"
#include "plan/text.h"

namespace lyceum {

double StagePlan::tokens() const {
  const BatchConfig& batch = plan.config.batch;
  return static_cast<double>(last_step - first_step + 1) * static_cast<double>(batch.global * batch.seq_len);
}

std::vector<StagePlan> plan_stages(const MeshPlan& first, const std::optional<Cluster>& cluster,
                                   const LoadProfile* load) {
  const Config& config = first.config;
  std::vector<StagePlan> stages;
  for (int stage = 1; stage <= stage_count(config) && stage_count(config) > 1; ++stage) {
    stages.push_back(
        {.stage = stage,
         .first_step = first_step_of(config, stage),
         .last_step = last_step_of(config, stage),
         .plan = stage == 1 ? first : plan_mesh(config_of_stage(config, stage), first.world, cluster, {}, load)});
  }
  return stages;
}

double seconds_of_run(std::span<const StagePlan> stages, double tokens) {
  double seconds = 0;
  for (const StagePlan& stage : stages) {
    const double own = &stage == &stages.back() ? tokens : std::min(tokens, stage.tokens());
    seconds += own / stage.plan.tokens_per_second();
    tokens -= own;
  }
  return seconds;
}

std::string stages_report(std::span<const StagePlan> stages) {
  if (stages.empty()) return {};
  const bool timed = stages.front().plan.time.has_value();
  std::vector<std::string> headings{">stage", ">steps", ">sequences", ">of tokens", ">tokens", ">memory"};
  if (timed) headings.insert(headings.end(), {">ms per step", ">duration"});
  Table table(headings);
  for (const StagePlan& stage : stages) {
    const BatchConfig& batch = stage.plan.config.batch;
    std::vector<std::string> row{fmt::to_string(stage.stage),  fmt::format("{}-{}", stage.first_step, stage.last_step),
                                 fmt::to_string(batch.global), fmt::to_string(batch.seq_len),
                                 human_count(stage.tokens()),  bytes_text(stage.plan.peak_memory())};
    if (timed) {
      row.push_back(fmt::format("{:.2f}", 1e3 * stage.plan.time->total()));
      row.push_back(human_duration(stage.tokens() / stage.plan.tokens_per_second()));
    }
    table.add(std::move(row));
  }
  return "\ntraining stages; all other figures are those of stage 1\n" + table.text();
}

}  // namespace lyceum
