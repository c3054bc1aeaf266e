#pragma once

#include <nlohmann/json_fwd.hpp>

#include <span>
#include <string>
#include <vector>

#include "apps/run_config.h"
#include "io/data/records/task_items.h"
#include "model/staged_model.h"
#include "train/eval/task_scores.h"

/// `lyceum eval --tasks`: the score of a model on tasks with several choices.
namespace lyceum {

/// The options of `lyceum eval` about tasks.
struct TaskOptions {
  std::vector<std::string> files;  // of --tasks, see read_task()
  std::string log;  // of --task-log: JSON lines with the sums of log-probabilities of each item, or empty
};

/// A task in the tokens of a model.
struct EncodedTask {
  std::string file;
  std::vector<TaskItem> items;
  TaskTokens tokens;
};

/// Reads and encodes tasks. Throws the errors of tokenizer_of(), and a bad_input Error that names the line of a bad
/// item.
std::vector<EncodedTask> read_tasks(const CheckpointRun& run, const std::vector<std::string>& files);

/// Collective over the world. Scores a model on tasks. Returns the member "tasks" of the command's JSON: a list with
/// the file, the number of items, and the scores of each task. Writes the log of each choice to the file `log` on rank
/// 0, unless it is empty. Throws a failed Error if the log cannot be written or a log-probability is not finite.
nlohmann::ordered_json score_tasks(const CheckpointRun& run, const RunSetup& setup, StagedModel& model,
                                   std::span<const EncodedTask> tasks, const std::string& log);

/// Returns the table of the results of score_tasks() for the console.
std::string task_table(const nlohmann::ordered_json& tasks);

}  // namespace lyceum
