#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/feature.h"

namespace lyceum {

/// A training stage after the first: the section [stage.N] of a configuration. It keeps the values of the stage before
/// it, except for those that it sets.
struct TrainingStage {
  std::int64_t from_step = 0;                   // its first step; the first step of a run is 1; 0: not set
  std::map<std::string, std::string> values{};  // "batch.global" → value as text
};
/// The stages after the first, in order. Element 0 is stage 2.
using TrainingStages = std::vector<TrainingStage>;

/// Returns a list of the keys that a stage may set in addition to from_step: "data.train, batch.global, …".
std::string stage_keys_text();

/// True if the key `key` is one of a stage, such as "stage.2.batch.global".
bool is_stage_key(std::string_view key);
/// Sets the key `key` of a stage to a value, and adds the stage if it does not exist. `lenient`: accept every number,
/// as Setting::assign_leniently() does. Throws a boost::program_options::error that states the mistake if there is no
/// such key, a stage may not set it, or the text is not one of its values.
void assign_in_stage(std::string_view key, const std::string& text, bool lenient, TrainingStages& stages);
/// Returns the keys of all stages and their values, as assign_in_stage() accepts them: ("stage.2.from_step", "201"), …
std::vector<std::pair<std::string, std::string>> entries_of(const TrainingStages& stages);

/// Returns the number of stages, at least 1.
int stage_count(const Config& config);
/// Returns the stage that makes step `step`, counted from 1. 1 for step 0.
int stage_of_step(const Config& config, std::int64_t step);
/// Returns the first step of a stage; 1 for stage 1.
std::int64_t first_step_of(const Config& config, int stage);
/// Returns the last step of a stage: run.steps for the last one.
std::int64_t last_step_of(const Config& config, int stage);
/// Returns the configuration of a stage, 1 to stage_count(): a configuration without further stages. It is resolved if
/// `config` is. Sets Config::division_batch and Config::longest_seq_len.
Config config_of_stage(Config config, int stage);

/// Returns the largest batch.seq_len of all stages of the run.
std::int64_t longest_seq_len(const Config& config);

/// The learning-rate schedule of a stage, which may have begun in an earlier one. All members count steps of the run.
struct StageSchedule {
  std::int64_t begin = 0;  // steps before the first one of the schedule
  std::int64_t steps = 0;  // length: optim.schedule_steps, or else up to `end`
  std::int64_t end = 0;    // steps before the first one of the next schedule; run.steps if there is no next one
};
StageSchedule schedule_of_stage(const Config& config, int stage);
/// Returns the name under which a user sets a key of the schedule of a stage, such as "optim.schedule_steps":
/// "stage.2.optim.schedule_steps" if the schedule began with stage 2.
std::string schedule_key(const Config& config, int stage, std::string_view key);

/// Checks the numbers and first steps of the stages, not their values.
void check_training_stages(Findings& findings, const Config& config);
/// Sets batch.micro in each stage for which resolve() derives a value that differs from that of the stage before.
void derive_training_stages(Config& config, int world);

}  // namespace lyceum
