#include "config/training_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "config/config.h"
#include "config/findings.h"
#include "config/keys.h"
#include "config/mesh.h"
#include "core/error.h"

namespace lyceum {

namespace {

namespace po = boost::program_options;

constexpr std::string_view section = "stage.", first_step_key = "from_step";
constexpr int most_stages = 100;

/// A key that a stage may set.
struct StageKey {
  std::string_view name;
  bool starts_schedule = false;  // a stage that sets it starts a new learning-rate schedule
};

/// Everything that may change during a run. Nothing that weights, optimizer states or checkpoints depend on belongs
/// here.
constexpr std::array stage_keys{StageKey{"data.train"},
                                StageKey{"batch.global"},
                                StageKey{"batch.micro"},
                                StageKey{"batch.seq_len"},
                                StageKey{"model.rope_base"},
                                StageKey{"model.rope_scaling"},
                                StageKey{"model.rope_factor"},
                                StageKey{"model.rope_original_length"},
                                StageKey{"model.rope_low_freq_factor"},
                                StageKey{"model.rope_high_freq_factor"},
                                StageKey{"model.rope_beta_fast"},
                                StageKey{"model.rope_beta_slow"},
                                StageKey{"model.rope_truncate"},
                                StageKey{"model.rope_attention_factor"},
                                StageKey{"model.rope_mscale"},
                                StageKey{"model.rope_mscale_all_dim"},
                                StageKey{"optim.lr"},
                                StageKey{"optim.min_lr"},
                                StageKey{"optim.schedule", true},
                                StageKey{"optim.schedule_steps", true},
                                StageKey{"optim.warmup_steps", true},
                                StageKey{"optim.warmup_from", true},
                                StageKey{"optim.decay_steps", true}};

/// A key of a stage, divided into the number of the stage and the key of the configuration, or from_step.
struct ParsedKey {
  int stage;
  std::string name;
};

ParsedKey parse(std::string_view key) {
  const std::size_t begin = section.size(), dot = key.find('.', begin);
  int stage = 0;
  const char* const end = key.data() + std::min(dot, key.size());
  const auto [last, error] = std::from_chars(key.data() + begin, end, stage);
  if (error != std::errc() || last != end || dot == std::string_view::npos || stage < 1 || stage > most_stages) {
    throw po::error(fmt::format("write stage.N.KEY with N = 2, 3, … {}, such as stage.2.batch.global", most_stages));
  }
  ParsedKey parsed{.stage = stage, .name = std::string(key.substr(dot + 1))};
  if (stage == 1) {
    throw po::error(parsed.name == first_step_key ? "stage 1 begins with step 1: remove this key"
                                                  : "stage 1 is the configuration itself: set " + parsed.name);
  }
  return parsed;
}

bool starts_schedule(const TrainingStage& stage) {
  return std::ranges::any_of(stage_keys, [&](const StageKey& key) {
    return key.starts_schedule && stage.values.contains(std::string(key.name));
  });
}

/// Checks a value and returns it in the form that Setting::text() has.
std::string normal_text(const Setting& setting, const std::string& text, bool lenient) {
  lenient ? setting.assign_leniently(text) : setting.assign(text);
  return setting.text();
}

}  // namespace

std::string stage_keys_text() {
  std::string text;
  for (const StageKey& key : stage_keys) text.append(text.empty() ? "" : ", ").append(key.name);
  return text;
}

bool is_stage_key(std::string_view key) { return key.starts_with(section); }

void assign_in_stage(std::string_view key, const std::string& text, bool lenient, TrainingStages& stages) {
  const auto [number, name] = parse(key);
  TrainingStage with_value;  // assigned only if the value is right
  const auto stage = [&]() -> TrainingStage& {
    if (std::ssize(stages) < number - 1) stages.resize(static_cast<std::size_t>(number) - 1);
    return stages[static_cast<std::size_t>(number) - 2];
  };
  if (name == first_step_key) {
    normal_text(Setting(&with_value.from_step, {.low = 2}), text, lenient);
    stage().from_step = with_value.from_step;
    return;
  }
  Config scratch;
  const ConfigKeys keys = keys_of(scratch);
  const ConfigKey* const found = find_key(keys, name);
  if (!found || std::ranges::find(stage_keys, name, &StageKey::name) == stage_keys.end()) {
    throw po::error(fmt::format("{}; a stage may set from_step, {}",
                                found ? name + " cannot change during a run" : "there is no key " + name,
                                stage_keys_text()));
  }
  const std::string value = normal_text(found->setting, text, lenient);
  stage().values.insert_or_assign(name, value);
}

std::vector<std::pair<std::string, std::string>> entries_of(const TrainingStages& stages) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const auto& [from_step, values] = stages[s];
    if (from_step == 0 && values.empty()) continue;  // a number that the user left out
    const std::string prefix = fmt::format("{}{}.", section, s + 2);
    entries.emplace_back(prefix + std::string(first_step_key), fmt::to_string(from_step));
    for (const StageKey& key : stage_keys) {
      const auto value = values.find(std::string(key.name));
      if (value != values.end()) entries.emplace_back(prefix + value->first, value->second);
    }
  }
  return entries;
}

int stage_count(const Config& config) { return static_cast<int>(config.training_stages.size()) + 1; }

int stage_of_step(const Config& config, std::int64_t step) {
  int stage = 1;
  while (stage < stage_count(config) && first_step_of(config, stage + 1) <= step) ++stage;
  return stage;
}

std::int64_t first_step_of(const Config& config, int stage) {
  return stage == 1 ? 1 : config.training_stages.at(static_cast<std::size_t>(stage) - 2).from_step;
}

std::int64_t last_step_of(const Config& config, int stage) {
  return stage == stage_count(config) ? config.run.steps : first_step_of(config, stage + 1) - 1;
}

Config config_of_stage(Config config, int stage) {
  require(stage >= 1 && stage <= stage_count(config), "there is no stage {} among {}", stage, stage_count(config));
  const std::int64_t longest = longest_seq_len(config);
  const TrainingStages stages = std::exchange(config.training_stages, {});
  if (stage > 1) config.division_batch = config.batch;
  config.longest_seq_len = longest;
  const ConfigKeys keys = keys_of(config);
  for (const TrainingStage& each : std::span(stages).first(static_cast<std::size_t>(stage) - 1)) {
    if (starts_schedule(each)) {
      config.optim.schedule_steps = config.optim.warmup_steps = config.optim.decay_steps = 0;
      config.optim.warmup_from = 0;
    }
    for (const auto& [name, value] : each.values) find_key(keys, name)->setting.assign_leniently(value);
  }
  return config;
}

std::int64_t longest_seq_len(const Config& config) {
  std::int64_t longest = std::max(config.batch.seq_len, config.longest_seq_len);
  for (const TrainingStage& stage : config.training_stages) {
    const auto value = stage.values.find("batch.seq_len");
    if (value != stage.values.end()) longest = std::max(longest, std::int64_t{std::atoll(value->second.c_str())});
  }
  return longest;
}

StageSchedule schedule_of_stage(const Config& config, int stage) {
  StageSchedule schedule{.end = config.run.steps};
  for (int other = 2; other <= stage_count(config); ++other) {
    if (!starts_schedule(config.training_stages[static_cast<std::size_t>(other) - 2])) continue;
    const std::int64_t before = first_step_of(config, other) - 1;
    if (other > stage) {
      schedule.end = before;
      break;
    }
    schedule.begin = before;
  }
  const std::int64_t given = config_of_stage(config, stage).optim.schedule_steps;
  schedule.steps = given > 0 ? given : schedule.end - schedule.begin;
  return schedule;
}

std::string schedule_key(const Config& config, int stage, std::string_view key) {
  while (stage > 1 && !starts_schedule(config.training_stages[static_cast<std::size_t>(stage) - 2])) --stage;
  return stage == 1 ? std::string(key) : fmt::format("{}{}.{}", section, stage, key);
}

void check_training_stages(Findings& findings, const Config& config) {
  const TrainingStages& stages = config.training_stages;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const std::size_t number = s + 2;
    const std::int64_t from = stages[s].from_step;
    if (from == 0) {
      const bool absent = stages[s].values.empty();
      findings.unless(!absent, "there is no stage.{} before stage.{}: number the stages 2, 3, 4 … without a gap",
                      number, stages.size() + 1);
      findings.unless(absent, "stage.{0}.from_step is not set: set the number of the first step of stage {0}", number);
      return;
    }
    findings.unless(from >= 2, "stage.{}.from_step = {}: must be >= 2, since step 1 belongs to stage 1", number, from);
    findings.unless(from <= config.run.steps,
                    "stage.{}.from_step = {} is after the last step, run.steps = {}: lower it, or remove the stage",
                    number, from, config.run.steps);
    const std::int64_t before = s == 0 ? 1 : stages[s - 1].from_step;
    findings.unless(s == 0 || from > before,
                    "stage.{}.from_step = {} is not after stage.{}.from_step = {}: number the stages in the order of "
                    "their steps",
                    number, from, number - 1, before);
  }
}

void derive_training_stages(Config& config, int world) {
  const Config given = config;
  std::int64_t before = 0;
  for (int stage = 1; stage <= stage_count(given); ++stage) {
    Config own = config_of_stage(given, stage);
    derive_micro_batch(own, world);
    const std::int64_t micro = std::exchange(before, own.batch.micro);
    if (stage == 1 || own.batch.micro == micro) continue;
    config.training_stages[static_cast<std::size_t>(stage) - 2].values.insert_or_assign("batch.micro",
                                                                                        fmt::to_string(before));
  }
}

}  // namespace lyceum
