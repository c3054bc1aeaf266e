#include "apps/eval_tasks.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "apps/text_start.h"
#include "apps/written_files.h"
#include "core/error.h"
#include "core/real_text.h"
#include "io/files/atomic_file.h"
#include "io/files/sha256.h"
#include "io/text/json.h"
#include "io/text/table.h"

namespace lyceum {

namespace fs = std::filesystem;

namespace {

/// Collective over the world. Throws a bad_input Error unless all ranks have the same tasks.
void require_same_tasks(const ProcessGroup& world, std::span<const EncodedTask> tasks) {
  Sha256 digest;
  for (const EncodedTask& task : tasks) {
    for (const ScoredSequence& choice : task.tokens.choices) {
      const std::array<std::int64_t, 2> sizes{std::ssize(choice.tokens), choice.scored};
      digest.update(std::as_bytes(std::span(sizes)));
      digest.update(std::as_bytes(std::span(choice.tokens)));
    }
  }
  const std::vector<std::string> digests = world.all_gather(digest.finish());
  const auto other = std::ranges::find_if(digests, [&](const std::string& each) { return each != digests.front(); });
  require_input(other == digests.end(),
                "--tasks: rank {} has other items than rank 0: give all ranks the same task files and tokenizer",
                other - digests.begin());
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

EncodedTasks read_tasks(const CheckpointRun& run, const TaskOptions& options) {
  const Tokenizer tokenizer = tokenizer_of(run);
  const TextStart text = text_start(run.reader, tokenizer);
  ContextStart start = text.context;
  if (options.no_bos) {
    start.added.clear();
  } else {
    require_input(
        text.after.empty(),
        "--tasks: the tokenizer of the imported model adds {} after each text, and so between a context and its "
        "choices: --no-bos scores without added tokens",
        tokenizer.decode(text.after, true));
  }
  EncodedTasks encoded{.bos = tokenizer.decode(start.added, true), .tasks = {}};
  for (const std::string& file : options.files) {
    std::vector<TaskItem> items = read_task(file);
    TaskTokens tokens = encode_task(items, tokenizer, start, run.config.batch.seq_len);
    encoded.tasks.push_back({.file = file, .items = std::move(items), .tokens = std::move(tokens)});
  }
  return encoded;
}

std::unique_ptr<PartialFile> open_task_log(const TaskOptions& options, const Arguments& configuration) {
  const fs::path path = options.log;
  std::vector<fs::path> read = configuration_files(configuration);
  read.insert(read.end(), options.files.begin(), options.files.end());
  require_harmless(std::array{WrittenFile{"--task-log", path}}, read);
  if (path.has_parent_path()) make_directories(path.parent_path());
  return std::make_unique<PartialFile>(options.log);
}

TaskResults score_tasks(const CheckpointRun& run, const RunSetup& setup, StagedModel& model,
                        std::span<const EncodedTask> tasks) {
  require_same_tasks(setup.mesh.world, tasks);
  TaskResults results{.scores = nlohmann::ordered_json::array(), .log = {}};
  for (const EncodedTask& task : tasks) {
    const std::vector<double> sums = log_probabilities(model, setup, run.config, task.tokens.choices);
    require(std::ranges::all_of(sums, [](double sum) { return std::isfinite(sum); }),
            "{}: a log-probability is not finite: the checkpoint is unusable", run.reader.directory().string());
    const TaskScores scores = task_scores(task.items, sums);
    results.scores.push_back({{"file", task.file},
                              {"items", scores.items},
                              {"choices", task.tokens.choices.size()},
                              {"cut", task.tokens.cut},
                              {"acc", scores.acc},
                              {"acc_stderr", scores.acc_stderr},
                              {"acc_norm", scores.acc_norm},
                              {"acc_norm_stderr", scores.acc_norm_stderr}});
    results.log += log_of(task, sums);
  }
  return results;
}

std::string task_table(const nlohmann::ordered_json& scores) {
  Table table({"task", ">items", ">acc", ">stderr", ">acc_norm", ">stderr"});
  std::string notes;
  for (const nlohmann::ordered_json& task : scores) {
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
