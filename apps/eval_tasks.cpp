#include "apps/eval_tasks.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>

#include "convert/hugging_face/side_files.h"
#include "core/error.h"
#include "core/real_text.h"
#include "io/files/whole_file.h"
#include "io/text/json.h"
#include "io/text/table.h"

namespace lyceum {

namespace {

/// Returns the token before a choice without context, as lm-evaluation-harness chooses it (`prefix_token_id` of
/// lm_eval/models/huggingface.py): the token that begins a text if an imported tokenizer has one, else the one that
/// ends a text.
std::int32_t prefix_token(const CheckpointReader& reader, const Tokenizer& tokenizer) {
  const std::optional<std::string> begin = hugging_face::begin_token_of(hugging_face::side_files_of(reader));
  const std::optional<std::int32_t> token = begin ? tokenizer.token(*begin) : std::nullopt;
  return token.value_or(tokenizer.end_of_document());
}

/// Returns one line of the log: a JSON object with the results of an item. `sums`: one per choice.
std::string log_line(const EncodedTask& task, std::size_t item, std::span<const double> sums,
                     std::span<const ScoredSequence> choices) {
  const TaskItem& from = task.items[item];
  nlohmann::ordered_json line{{"file", task.file}, {"line", from.line}, {"answer", from.answer}};
  for (std::size_t c = 0; c < sums.size(); ++c) {
    line["log_probabilities"].push_back(sums[c]);
    line["bytes"].push_back(from.choices[c].size());
    line["tokens"].push_back(choices[c].scored);
  }
  return json_text(line) + '\n';
}

std::string log_of(const EncodedTask& task, std::span<const double> sums) {
  std::string text;
  std::span<const ScoredSequence> choices = task.tokens.choices;
  for (std::size_t i = 0; i < task.items.size(); ++i) {
    const std::size_t count = task.items[i].choices.size();
    text += log_line(task, i, sums.first(count), choices.first(count));
    sums = sums.subspan(count);
    choices = choices.subspan(count);
  }
  return text;
}

}  // namespace

std::vector<EncodedTask> read_tasks(const CheckpointRun& run, const std::vector<std::string>& files) {
  const Tokenizer tokenizer = tokenizer_of(run);
  const std::int32_t prefix = prefix_token(run.reader, tokenizer);
  std::vector<EncodedTask> tasks;
  for (const std::string& file : files) {
    std::vector<TaskItem> items = read_task(file);
    TaskTokens tokens = encode_task(items, tokenizer, prefix, run.config.batch.seq_len);
    tasks.push_back({.file = file, .items = std::move(items), .tokens = std::move(tokens)});
  }
  return tasks;
}

nlohmann::ordered_json score_tasks(const CheckpointRun& run, const RunSetup& setup, StagedModel& model,
                                   std::span<const EncodedTask> tasks, const std::string& log) {
  const bool logs = !log.empty() && setup.mesh.world.rank() == 0;
  if (logs) write_whole_file(log, "");  // now, since the file may not be writable
  std::string lines;
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const EncodedTask& task : tasks) {
    const std::vector<double> sums = log_probabilities(model, setup, run.config, task.tokens.choices);
    require(std::ranges::all_of(sums, [](double sum) { return std::isfinite(sum); }),
            "{}: a log-probability is not finite: the checkpoint is unusable", run.reader.directory().string());
    const TaskScores scores = task_scores(task.items, sums);
    results.push_back({{"file", task.file},
                       {"items", scores.items},
                       {"choices", task.tokens.choices.size()},
                       {"cut", task.tokens.cut},
                       {"acc", scores.acc},
                       {"acc_stderr", scores.acc_stderr},
                       {"acc_norm", scores.acc_norm},
                       {"acc_norm_stderr", scores.acc_norm_stderr}});
    if (logs) lines += log_of(task, sums);
  }
  if (logs) write_whole_file(log, lines);
  return results;
}

std::string task_table(const nlohmann::ordered_json& tasks) {
  Table table({"task", ">items", ">acc", ">stderr", ">acc_norm", ">stderr"});
  std::string notes;
  for (const nlohmann::ordered_json& task : tasks) {
    const auto share = [&](const char* key) { return real_text(task[key].get<double>(), ".4f"); };
    const auto file = task["file"].get<std::string>();
    table.add({file, std::to_string(task["items"].get<std::int64_t>()), share("acc"), share("acc_stderr"),
               share("acc_norm"), share("acc_norm_stderr")});
    if (const auto cut = task["cut"].get<std::int64_t>(); cut > 0) {
      notes += fmt::format("{}: the context of {} was cut to fit batch.seq_len\n", file, count_text(cut, "choice"));
    }
  }
  return table.text() + notes;
}

}  // namespace lyceum
