#pragma once

#include <nlohmann/json.hpp>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/run_config.h"
#include "io/data/records/task_items.h"
#include "io/files/partial_file.h"
#include "model/staged_model.h"
#include "train/eval/task_scores.h"

/// `lyceum eval --tasks`: the score of a model on tasks with several choices.
namespace lyceum {

/// The options of `lyceum eval` about tasks.
struct TaskOptions {
  std::vector<std::string> files;  // of --tasks, see read_task()
  std::string log;      // of --task-log: JSON lines with the sums of log-probabilities of each item, or empty
  bool no_bos = false;  // the tokenizer's beginning-of-text tokens do not precede contexts
};

/// A task in the tokens of a model.
struct EncodedTask {
  std::string file;
  std::vector<TaskItem> items;
  TaskTokens tokens;
};

struct EncodedTasks {
  std::string bos;  // text of the tokens that precede contexts; empty if there are none
  std::vector<EncodedTask> tasks;
};

/// Reads and encodes tasks. Contexts begin as lm-evaluation-harness lets them begin for the tokenizer of an imported
/// model; in other runs no token precedes them. Throws the errors of tokenizer_of(), and a bad_input Error that names
/// the line of a bad item, or tokens that the imported tokenizer adds after each text.
EncodedTasks read_tasks(const CheckpointRun& run, const TaskOptions& options);

/// Opens the file of --task-log, whose contents remain until publish() replaces them; creates missing folders.
/// `configuration`: the arguments with --config, whose file must not be replaced. Throws the errors of
/// require_harmless(), and a failed Error if the file cannot be written.
std::unique_ptr<PartialFile> open_task_log(const TaskOptions& options, const Arguments& configuration);

/// The results of tasks.
struct TaskResults {
  nlohmann::ordered_json scores;  // per task: the file, the number of items, and the scores
  std::string log;                // the lines of --task-log
};
/// Collective over the world. Scores a model on tasks. Throws a bad_input Error if the ranks have different tasks, and
/// a failed Error if a log-probability is not finite.
TaskResults score_tasks(const CheckpointRun& run, const RunSetup& setup, StagedModel& model,
                        std::span<const EncodedTask> tasks);

/// Returns the table of the scores of score_tasks() for the console.
std::string task_table(const nlohmann::ordered_json& scores);

}  // namespace lyceum
