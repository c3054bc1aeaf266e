#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <filesystem>
#include <iterator>
#include <memory>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/eval_tasks.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/run_config.h"
#include "apps/written_files.h"
#include "config/binding.h"
#include "config/value_text.h"
#include "core/allocator.h"
#include "core/clock.h"
#include "core/real_text.h"
#include "core/resident_memory.h"
#include "io/data/tokens/data_identity.h"
#include "io/data/tokens/token_meta.h"
#include "io/files/new_hdf5.h"
#include "io/files/partial_file.h"
#include "io/routing/log.h"
#include "io/routing/stats.h"
#include "io/routing/text.h"
#include "io/routing/token_log.h"
#include "io/text/json.h"
#include "model/routing/mixture.h"
#include "model/routing/router.h"
#include "model/routing/routing_sums.h"
#include "plan/text.h"
#include "train/eval/evaluator.h"
#include "train/eval/token_collector.h"
#include "train/run/run_state.h"

namespace lyceum {

namespace po = boost::program_options;

namespace {

struct EvalOptions {
  std::string path, routing, token_log;
  std::int64_t batches = 0, skip_top = 0;
  bool ema = false, timing = false;
  TaskOptions tasks{};
};

/// The routing log of an evaluation, written as a NewHdf5, which finish() publishes.
class RoutingOutput {
 public:
  RoutingOutput(const std::string& file, std::vector<RoutingLog::Layer> layers, RoutingLog::Origin origin)
      : new_file_(file) {
    log_.emplace(new_file_.temporary(), std::move(layers), -1, std::move(origin));
  }

  /// Writes the only record and publishes the file. Throws if it cannot be written.
  void finish(std::int64_t step, std::span<const LayerRouting> record) {
    log_->append(step, record);
    require(log_->finish(), "{}: another program holds it open", new_file_.temporary().string());
    log_.reset();
    new_file_.publish();
  }

 private:
  NewHdf5 new_file_;
  std::optional<RoutingLog> log_;
};

/// Returns the keys that affect the loss and differ between training and this evaluation.
std::vector<Difference> changes(const CheckpointRun& run) {
  constexpr std::array relevant{"batch.seq_len", "run.precision", "data.valid"};
  constexpr std::array irrelevant{"model.recompute", "model.loss_chunk", "model.init_std", "moe.top_k_start"};
  std::vector<Difference> changed = differences(run.own, run.config);
  std::erase_if(changed, [&](const Difference& difference) {
    const auto begins = [&](const char* part) { return difference.key.starts_with(part); };
    const bool no_limit = difference.key == "moe.capacity_factor" && !(run.config.moe.capacity_factor > 0);
    const bool is_relevant = describes_model(difference.key) || std::ranges::any_of(relevant, begins);
    return no_limit || !is_relevant || std::ranges::any_of(irrelevant, begins);
  });
  return changed;
}

ChosenWidth width_of(const Config& config, const Evaluation& evaluation) {
  ChosenWidth width;
  for (const RoutingSums& sums : evaluation.routing) {
    width.add(sums.id, sums.counts, mixture_of(config, sums.id).widths);
  }
  return width;
}

/// Returns the tokens per byte of text; nothing if the data do not state their bytes, or if a mask excludes tokens.
std::optional<double> tokens_per_byte(std::span<const TokenLoader> data) {
  double tokens = 0, bytes = 0;
  for (const TokenLoader& loader : data) {
    const std::optional<TokenMeta> meta = read_token_meta(loader.token_source().prefix());
    if (!meta || loader.token_source().has_mask()) return {};
    tokens += static_cast<double>(meta->tokens);
    bytes += static_cast<double>(meta->bytes);
  }
  return tokens / bytes;
}

/// Returns the changes() as a JSON object.
nlohmann::ordered_json changes_json(const CheckpointRun& run) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const Difference& change : changes(run)) json[change.key] = {{"before", change.before}, {"after", change.after}};
  return json;
}

/// Returns the results as JSON. bits_per_byte is null if the bytes of the text are unknown; chosen_width is null
/// without experts.
nlohmann::ordered_json summary(const CheckpointRun& run, const EvalOptions& options,
                               const SourcesEvaluation& evaluations, std::span<const TokenLoader> data) {
  const CheckpointReader& reader = run.reader;
  const Evaluation& evaluation = evaluations.whole;
  nlohmann::ordered_json result{{"checkpoint", reader.directory().string()},
                                {"step", reader.header().step},
                                {"loss", evaluation.loss},
                                {"standard_error", evaluation.standard_error},
                                {"perplexity", std::exp(evaluation.loss)},
                                {"bits_per_byte", nullptr},
                                {"tokens", evaluation.tokens},
                                {"chosen_width", nullptr},
                                {"skip_top", options.skip_top},
                                {"ema", options.ema},
                                {"changed", changes_json(run)}};
  if (!evaluation.routing.empty()) result["chosen_width"] = width_of(run.config, evaluation).mean();
  if (const std::optional<double> tokens = tokens_per_byte(data)) {
    result["bits_per_byte"] = evaluation.loss / std::numbers::ln2 * *tokens;
  }
  if (data.size() > 1) {
    for (std::size_t s = 0; s < data.size(); ++s) {
      const Evaluation& own = evaluations.sources[s];
      result["sources"][data[s].token_source().prefix()] = {
          {"loss", own.loss}, {"standard_error", own.standard_error}, {"tokens", own.tokens}};
    }
  }
  return result;
}

/// Collective over the world. Returns the speed of an evaluation that took `seconds`, and the peaks of memory: of the
/// rank with the highest one.
nlohmann::ordered_json timing_json(const Evaluation& evaluation, double seconds, const RunSetup& setup) {
  std::array peaks{static_cast<std::int64_t>(memory_of(setup.stream).use().total_peak), peak_resident_memory()};
  setup.mesh.world.all_reduce(std::span(peaks), Reduction::max);
  return {{"seconds", seconds},
          {"tokens_per_second", static_cast<double>(evaluation.positions) / seconds},
          {"memory_peak_bytes", peaks[0]},
          {"resident_peak_bytes", peaks[1]}};
}

/// Warns of each token file of the evaluation that has the name, but not the contents, of one that the run read.
void warn_of_changed_files(const CheckpointRun& run, std::span<const TokenLoader> data) {
  const char* key = run.config.data.valid.empty() ? "data.train" : "data.valid";
  std::vector<DataIdentity> now;
  for (const TokenLoader& loader : data) {
    const TokenSource& source = loader.token_source();
    now.push_back({.key = key, .prefix = source.prefix(), .fingerprint = source.fingerprint()});
  }
  const std::vector<DataIdentity> before = RunState::data_of(run.reader.header().trainer_state);
  for (const DataIdentity& file : changed_data(before, now)) {
    fmt::print(stderr, "warning: {} = {}: the files have changed since the checkpoint was saved\n", file.key,
               file.prefix);
  }
}

/// Returns one line on the settings that differ from training; empty if none does.
std::string changes_text(const CheckpointRun& run, const EvalOptions& options) {
  std::string text;
  const auto add = [&](const std::string& change) { text += (text.empty() ? "changed        " : ", ") + change; };
  for (const auto& [key, before, after] : changes(run))
    add(fmt::format("{} = {} (trained with {})", key, value_text(after), before.empty() ? "none" : value_text(before)));
  if (options.ema) add("--ema: moving average of the weights");
  if (options.skip_top > 0) add(fmt::format("--skip-top = {}", options.skip_top));
  return text.empty() ? text : text + '\n';
}

std::string text(const nlohmann::ordered_json& summary) {
  const auto number = [&](const char* name) { return summary[name].get<double>(); };
  std::string text = fmt::format(
      "checkpoint     {} (step {})\ntokens         {}\nloss           {} nats per token, standard error {}\n"
      "perplexity     {}\nbits per byte  {}\n",
      summary["checkpoint"].get<std::string>(), summary["step"].get<std::int64_t>(),
      summary["tokens"].get<std::int64_t>(), real_text(number("loss"), ".6f"),
      real_text(number("standard_error"), ".6f"), real_text(number("perplexity"), ".4f"),
      summary["bits_per_byte"].is_null() ? "unknown: the data have no .json file, or a mask excludes tokens"
                                         : real_text(number("bits_per_byte"), ".4f"));
  if (summary.contains("sources")) {
    for (const auto& [prefix, source] : summary["sources"].items()) {
      text += fmt::format(
          "  {}  loss {}, standard error {}, {} tokens\n", prefix, real_text(source["loss"].get<double>(), ".6f"),
          real_text(source["standard_error"].get<double>(), ".6f"), source["tokens"].get<std::int64_t>());
    }
  }
  if (summary.contains("timing")) {
    const auto figure = [&](const char* name) { return summary["timing"][name].get<double>(); };
    text +=
        fmt::format("time           {:.3f} s, {:.1f} tokens/s\nmemory         peak {} of tensors, {} of the process\n",
                    figure("seconds"), figure("tokens_per_second"), bytes_text(figure("memory_peak_bytes")),
                    bytes_text(figure("resident_peak_bytes")));
  }
  return text;
}

po::options_description described_options(EvalOptions& options) {
  po::options_description described;
  auto add = described.add_options();
  add("checkpoint", po::value(&options.path)->value_name("DIR"), "a checkpoint or the directory of a run");
  add("batches", po::value(&options.batches)->value_name("N")->default_value(options.batches),
      "batches of batch.global sequences to read, evenly spread over the validation data; 0: all");
  add("routing", po::value(&options.routing)->value_name("FILE"),
      "also write which experts the tokens chose to this HDF5 file, for `lyceum routing`");
  add("skip-top", po::value(&options.skip_top)->value_name("N")->default_value(options.skip_top),
      "each token skips its N best experts and uses the next moe.top_k");
  add("ema", po::bool_switch(&options.ema), "use the moving average of the weights (optim.ema)");
  add("token-log", po::value(&options.token_log)->value_name("FILE"),
      "also write the loss and the chosen experts of every token to this HDF5 file, for `lyceum routing difficult`");
  add("tasks", po::value(&options.tasks.files)->multitoken()->composing()->value_name("FILE…"),
      "instead of the loss, the accuracy on tasks: files with one record {\"context\", \"choices\", \"answer\"} per "
      "line");
  add("task-log", po::value(&options.tasks.log)->value_name("FILE"),
      "with --tasks: also write the log-probabilities of all choices to this JSON-lines file");
  add("no-bos", po::bool_switch(&options.tasks.no_bos),
      "with --tasks: leave out the beginning-of-text tokens that the tokenizer of an imported model adds to contexts, "
      "as lm-evaluation-harness did before version 0.4.9.2");
  add("timing", po::bool_switch(&options.timing),
      "also report the time, and the peak memory of the rank with the most, after a warm-up batch");
  add("json", "print one JSON object: loss standard_error perplexity bits_per_byte tokens chosen_width …");
  return described;
}

void check_tasks(const TaskOptions& tasks, const po::variables_map& values) {
  if (tasks.files.empty()) {
    require_usage(tasks.log.empty(), "--task-log needs --tasks");
    require_usage(!tasks.no_bos, "--no-bos needs --tasks");
    return;
  }
  for (const char* option : {"batches", "routing", "token-log", "timing"}) {
    const bool given = values.count(option) && !values[option].defaulted();
    require_usage(!given, "--{} and --tasks: give only one of them", option);
  }
}

/// Implements `lyceum eval --tasks`.
int evaluate_tasks(const MpiSession& session, const CheckpointRun& run, const EvalOptions& options,
                   const ParsedOptions& parsed) {
  const bool json = parsed.values.count("json") > 0;
  require_skippable(run.config, options.skip_top);
  std::unique_ptr<PartialFile> log;  // opened before the evaluation, since it may not be writable
  if (!options.tasks.log.empty() && session.rank() == 0) log = open_task_log(options.tasks, parsed.rest);
  const EncodedTasks encoded = read_tasks(run, options.tasks);
  const auto setup = set_up(run.config, session, Reading::evaluate);
  StagedModel model = weights_of(run, *setup);
  model.skip_top(options.skip_top);
  const TaskResults results = score_tasks(run, *setup, model, encoded.tasks);
  if (session.rank() != 0) return 0;
  const std::string directory = run.reader.directory().string();
  const std::int64_t step = run.reader.header().step;
  const std::exception_ptr unwritten = failure_of([&] {
    if (!log) return;
    log->write(results.log.data(), results.log.size());
    log->close();
    log->publish();
  });
  if (json) {
    const nlohmann::ordered_json result{{"checkpoint", directory}, {"step", step},       {"skip_top", options.skip_top},
                                        {"ema", options.ema},      {"bos", encoded.bos}, {"changed", changes_json(run)},
                                        {"tasks", results.scores}};
    print(json_text(result) + '\n');
  } else {
    const std::string bos = encoded.bos.empty() ? "" : fmt::format("contexts       begin with {}\n", encoded.bos);
    print(fmt::format("checkpoint     {} (step {})\n", directory, step) + changes_text(run, options) + bos +
          task_table(results.scores));
  }
  if (unwritten) std::rethrow_exception(unwritten);
  return 0;
}

}  // namespace

CommandHelp eval_help() {
  EvalOptions defaults;
  return describe_configured(
      "[mpirun -n RANKS] lyceum eval --checkpoint DIR [--section.key=value …]",
      "Computes the mean cross-entropy of a checkpoint on data.valid. The configuration is the checkpoint's;\n"
      "a file and --section.key=value override it, e.g. --data.valid=other --parallel.expert=2. Keys of the model can\n"
      "also be changed as far as the weights allow, to measure their effect: --moe.top_k=1 or "
      "--moe.shared_experts=0.\n"
      "With --tasks, answers questions with the choice that the model finds most probable after the context, and\n"
      "prints the share of right answers (acc; acc_norm: by log-probability per byte).\n"
      "Without --checkpoint the newest checkpoint in the configured run.dir is used.",
      described_options(defaults));
}

int eval_command(const MpiSession& session, const Arguments& arguments) {
  EvalOptions options;
  const ParsedOptions parsed = parse_options(described_options(options), arguments);
  const auto& [path, routing, token_log, batches, skip_top, ema, timing, tasks] = options;
  if (parsed.help) {
    if (session.rank() == 0) print(eval_help().text);
    return 0;
  }
  check_tasks(tasks, parsed.values);
  require_usage(!timing || token_log.empty(), "--timing and --token-log: give only one of them");
  require_usage(batches >= 0, "--batches = {}: must be 0 (all of the validation data) or more", batches);
  std::optional<CheckpointRun> run = configure_reader(session, path, parsed.rest);
  if (!run) return 0;
  if (ema) run->reader.use_averages();
  if (!tasks.files.empty()) return evaluate_tasks(session, *run, options, parsed);
  const auto& [reader, config, own, global_batch] = *run;
  require_skippable(config, skip_top);
  const auto setup = set_up(config, session, Reading::evaluate);
  require_usage(routing.empty() || !mixtures_of(config).empty(), "--routing: this model has no experts to route to");
  const RunData data = open_data(config, *setup, false);
  require_usage(!data.valid.empty(), "no data to evaluate on: set data.valid");
  require_usage(token_log.empty() || data.valid.size() == 1, "--token-log: set data.valid to a single prefix");
  std::vector<std::filesystem::path> read = configuration_files(parsed.rest);
  for (const auto& loader : data.valid) {
    std::ranges::move(files_of_tokens(loader.token_source().prefix()), std::back_inserter(read));
  }
  require_harmless(std::array{WrittenFile{"--routing", routing}, WrittenFile{"--token-log", token_log}}, read);
  if (session.rank() == 0) warn_of_changed_files(*run, data.valid);
  StagedModel model = weights_of(*run, *setup);
  model.skip_top(skip_top);
  Config counted = config;
  counted.batch.global = global_batch;  // with --batches the number of samples does not depend on the number of ranks
  std::optional<RoutingOutput> log;     // opened before the evaluation, since the file may not be writable
  if (!routing.empty() && session.rank() == 0) {
    log.emplace(routing, logged_layers(config, place_all_experts(config, setup->mesh.expert.size(), {})),
                RoutingLog::Origin{.run_uuid = reader.header().run_uuid,
                                   .description = "Tokens that each expert received in an evaluation of " +
                                                  reader.directory().string() + " on " + config.data.valid});
  }
  std::optional<TokenLog> tokens;
  if (!token_log.empty() && session.rank() == 0) {
    tokens.emplace(token_log, TokenLog::Header{.checkpoint = reader.directory().string(),
                                               .data = data.valid.front().token_source().prefix(),
                                               .step = reader.header().step,
                                               .tokens = evaluated_samples(counted, data.valid.front(), batches) *
                                                         config.batch.seq_len,
                                               .layers = token_log_layers(config)});
  }
  std::optional<TokenCollector> collector;
  if (!token_log.empty()) collector.emplace(*setup, config, model, tokens ? &*tokens : nullptr);
  if (timing) {
    memory_of(setup->stream).reset_peaks();  // loading used additional memory
    warm_up(model, *setup, counted, data.valid.front());
  }
  const auto start = Clock::now();
  const SourcesEvaluation evaluations =
      evaluate(model, *setup, counted, data.valid, batches, {.collector = collector ? &*collector : nullptr});
  const double seconds = seconds_since(start);
  const Evaluation& evaluation = evaluations.whole;
  require(std::isfinite(evaluation.loss), "{}: the loss is not finite: the checkpoint is unusable",
          reader.directory().string());
  const nlohmann::ordered_json times = timing ? timing_json(evaluation, seconds, *setup) : nlohmann::ordered_json();
  if (session.rank() != 0) return 0;
  const std::exception_ptr no_tokens = failure_of([&] {
    if (tokens) tokens->finish();
  });
  const std::exception_ptr no_counts = failure_of([&] {
    if (log) log->finish(reader.header().step, routing_record(evaluation.routing, evaluation.positions));
  });

  nlohmann::ordered_json result = summary(*run, options, evaluations, data.valid);
  if (timing) result["timing"] = times;
  if (parsed.values.count("json")) {
    print(json_text(result) + '\n');
  } else {
    print(text(result) + changes_text(*run, options));
    if (const ChosenWidth width = width_of(config, evaluation); width.varies()) print(width_text(width) + '\n');
  }
  for (const std::exception_ptr& failure : {no_tokens, no_counts}) {
    if (failure) std::rethrow_exception(failure);
  }
  return 0;
}

}  // namespace lyceum
