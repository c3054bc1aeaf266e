#include <nlohmann/json.hpp>

#include <cmath>

#include "io/report/comparison.h"
#include "io/text/json.h"

namespace lyceum {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json valid_or_null(const std::optional<ValidLoss>& valid) {
  return valid ? Json{{"step", valid->step}, {"loss", number_or_null(valid->loss)}} : Json(nullptr);
}

Json milestones_json(const std::vector<Milestone>& milestones, const char* unit) {
  Json list = Json::array();
  for (const Milestone& milestone : milestones) {
    list.push_back({{unit, milestone.at},
                    {"loss", number_or_null(milestone.loss)},
                    {"valid_loss", valid_or_null(milestone.valid)}});
  }
  return list;
}

Json run_json(const ComparedRun& run) {
  const RunSummary& summary = run.summary;
  return {{"name", run.name},
          {"metrics", run.file},
          {"program", run.program.empty() ? Json(nullptr) : Json(run.program)},
          {"mesh", run.mesh.empty() ? Json(nullptr) : Json(run.mesh)},
          {"steps", summary.steps},
          {"tokens", number_or_null(summary.tokens)},
          {"seconds", number_or_null(summary.seconds)},
          {"at_steps", milestones_json(summary.at_steps, "step")},
          {"at_tokens", milestones_json(summary.at_tokens, "tokens")},
          {"loss", number_or_null(summary.loss)},
          {"last_valid_loss", valid_or_null(summary.last_valid)},
          {"lowest_valid_loss", valid_or_null(summary.lowest_valid)},
          {"grad_norm", number_or_null(summary.grad_norm)},
          {"tokens_per_second", number_or_null(summary.tokens_per_second)},
          {"step_ms", number_or_null(summary.step_ms)},
          {"mfu", number_or_null(summary.mfu)},
          {"memory_peak_bytes", number_or_null(summary.peak_bytes)},
          {"resident_peak_bytes", number_or_null(summary.resident_bytes)},
          {"max_violation", number_or_null(summary.max_violation)},
          {"idle_experts", number_or_null(summary.idle_experts)},
          {"dead_experts", number_or_null(summary.dead_experts)},
          {"skipped", number_or_null(summary.skipped)},
          {"rollbacks", number_or_null(summary.rollbacks)},
          {"steps_not_finite", summary.not_finite}};
}

}  // namespace

std::string comparison_json(const Comparison& comparison) {
  Json runs = Json::array(), settings = Json::object();
  for (const ComparedRun& run : comparison.runs) runs.push_back(run_json(run));
  for (const auto& [key, values] : comparison.settings) {
    Json list = Json::array();
    for (std::size_t run = 0; run < values.size(); ++run) {
      list.push_back(comparison.runs[run].configured ? Json(values[run]) : Json(nullptr));
    }
    settings[key] = std::move(list);
  }
  return json_text(Json{{"runs", std::move(runs)}, {"differing_keys", std::move(settings)}}, 1) + '\n';
}

}  // namespace lyceum
