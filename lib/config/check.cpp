#include "config/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "config/consistency.h"
#include "config/findings.h"
#include "config/keys.h"
#include "config/mesh.h"
#include "config/value_text.h"
#include "core/error.h"
#include "core/printable.h"

namespace lyceum {
namespace {

void check_ranges(Findings& findings, const Config& config) {
  Config copy = config;
  for (const ConfigKey& key : keys_of(copy)) {
    const std::string problem = key.setting.problem();
    findings.unless(problem.empty(), "{} = {}: {}", key.name, value_text(key.setting.text()), problem);
  }
}

}  // namespace

namespace {

/// Returns what makes the first stage impossible, without the stages after it.
std::vector<std::string> contradictions_of_stage(const Config& config, int world) {
  Findings findings;
  check_ranges(findings, config);
  check_model(findings, config.model);
  check_windows(findings, config);
  check_biases(findings, config);
  check_dropout(findings, config);
  check_size(findings, config);
  check_moe(findings, config);
  check_router(findings, config);
  check_attention_experts(findings, config);
  check_sub_dimensions(findings, config);
  check_mtp(findings, config);
  check_placement(findings, config);
  check_replacement(findings, config);
  check_replicas(findings, config);
  check_mesh(findings, config, world);
  check_consistency(findings, config, world);
  check_optim(findings, config);
  check_eval(findings, config);
  check_run(findings, config.run);
  return findings.take();
}

}  // namespace

std::vector<std::string> contradictions(const Config& config, int world, int first_stage) {
  require(world >= 1, "a configuration cannot be checked for {} ranks", world);
  std::vector<std::string> found = contradictions_of_stage(config, world), known = found;
  if (first_stage > 1) {  // only what is wrong with later stages, too
    const std::vector<std::string> later = contradictions_of_stage(config_of_stage(config, first_stage), world);
    std::erase_if(found, [&](const std::string& text) { return std::ranges::find(later, text) == later.end(); });
    known = found;
  }
  Findings findings;
  check_training_stages(findings, config);
  std::ranges::move(findings.take(), std::back_inserter(found));
  for (int stage = std::max(first_stage, 2); stage <= stage_count(config); ++stage) {
    for (std::string& text : contradictions_of_stage(config_of_stage(config, stage), world)) {
      if (std::ranges::find(known, text) != known.end()) continue;  // reported for an earlier stage
      found.push_back(fmt::format("stage {}: {}", stage, text));
      known.push_back(std::move(text));
    }
  }
  return found;
}

std::vector<std::string> problems(const Config& config, int world, int first_stage) {
  std::vector<std::string> found = contradictions(config, world, first_stage);
  Findings missing;
  check_device(missing, config.run);
  std::ranges::move(missing.take(), std::back_inserter(found));
  return found;
}

void resolve(Config& config, int world) {
  require(world >= 1, "a configuration cannot be resolved for {} ranks", world);
  derive_device(config.run);
  derive_training_stages(config, world);
  derive_micro_batch(config, world);
  derive_model(config.model);
  derive_gates(config);
  derive_balance(config);
}

void require_none(std::span<const std::string> problems) {
  if (problems.empty()) return;
  if (problems.size() == 1) fail(ExitCode::usage, "{}", printable(problems.front()));
  std::string text = fmt::format("{} mistakes in the configuration:", problems.size());
  for (const std::string& problem : problems.first(std::min(problems.size(), most_listed))) {
    text += "\n  " + printable(problem);
  }
  if (problems.size() > most_listed) text += fmt::format("\n  … and {} more", problems.size() - most_listed);
  fail(ExitCode::usage, "{}", text);
}

}  // namespace lyceum
