#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <iostream>
#include <numbers>

#include "apps/options.h"
#include "apps/run_config.h"
#include "train/evaluator.h"
#include "train/optimizer.h"
#include "train/routing_sums.h"

namespace lyceum {

namespace po = boost::program_options;

namespace {

/// bits_per_byte is null where the data do not tell how many bytes their tokens came from.
nlohmann::ordered_json summary(const CheckpointReader& reader, const Evaluation& evaluation, const TokenLoader& data) {
  nlohmann::ordered_json result{{"checkpoint", reader.directory().string()},
                                {"step", reader.header().step},
                                {"loss", evaluation.loss},
                                {"standard_error", evaluation.standard_error},
                                {"perplexity", std::exp(evaluation.loss)},
                                {"bits_per_byte", nullptr},
                                {"tokens", evaluation.tokens}};
  if (const std::optional<TokenMeta> meta = read_token_meta(data.file().prefix())) {
    const double tokens_per_byte = static_cast<double>(meta->tokens) / static_cast<double>(meta->bytes);
    result["bits_per_byte"] = evaluation.loss / std::numbers::ln2 * tokens_per_byte;
  }
  return result;
}

std::string text(const nlohmann::ordered_json& summary, const std::string& data) {
  const auto number = [&](const char* name) { return summary[name].get<double>(); };
  return fmt::format(
      "checkpoint     {} (step {})\ntokens         {}\nloss           {:.6f} nats a token, standard error {:.6f}\n"
      "perplexity     {:.4f}\nbits per byte  {}\n",
      summary["checkpoint"].get<std::string>(), summary["step"].get<std::int64_t>(),
      summary["tokens"].get<std::int64_t>(), number("loss"), number("standard_error"), number("perplexity"),
      summary["bits_per_byte"].is_null() ? "unknown: " + data + ".json is absent"
                                         : fmt::format("{:.4f}", number("bits_per_byte")));
}

struct EvalOptions {
  std::string path, routing;
  std::int64_t batches = 0;
};

po::options_description described_options(EvalOptions& options) {
  po::options_description described;
  auto add = described.add_options();
  add("checkpoint", po::value(&options.path)->value_name("DIR"), "a checkpoint, or the directory of a run");
  add("batches", po::value(&options.batches)->value_name("N")->default_value(options.batches),
      "batches of batch.global to read, spread evenly over the validation data; 0: all of it");
  add("routing", po::value(&options.routing)->value_name("FILE"),
      "also write which experts the tokens chose to this HDF5 file, for `lyceum routing`");
  add("json", "print one JSON object: loss standard_error perplexity bits_per_byte tokens");
  return described;
}

}  // namespace

CommandHelp eval_help() {
  EvalOptions defaults;
  return describe_configured(
      "[mpirun -n RANKS] lyceum eval --checkpoint DIR [--section.key=value …]",
      "Mean cross-entropy of a checkpoint on data.valid. The checkpoint brings its configuration;\n"
      "a file and --section.key=value change it, e.g. --data.valid=other --parallel.expert=2.\n"
      "Without --checkpoint it is the newest one of the run.dir that they name.",
      described_options(defaults));
}

int eval_command(const MpiSession& session, const Arguments& arguments) {
  EvalOptions options;
  const ParsedOptions parsed = parse_options(described_options(options), arguments);
  const auto& [path, routing, batches] = options;
  if (parsed.help) {
    if (session.rank() == 0) std::cout << eval_help().text;
    return 0;
  }
  require_usage(batches >= 0, "--batches = {}: 0 (all of the validation data) or more", batches);
  const std::optional<CheckpointRun> run = configure_reader(session, path, parsed.rest);
  if (!run) return 0;
  const auto& [reader, config, global_batch] = *run;
  const auto setup = set_up(config, session, Reading::evaluate);
  require_usage(routing.empty() || !mixtures_of(config).empty(), "--routing: this model has no experts to route to");
  const RunData data = open_data(config, false);
  require_usage(data.valid.has_value(), "nothing to evaluate on: set data.valid");
  StagedModel model(config, setup->stream, setup->mesh, working_type(config.run), false);
  load_weights(reader, setup->stream, model.units());
  Config counted = config;
  counted.batch.global = global_batch;  // --batches means as many samples on any number of ranks
  std::optional<RoutingLog> log;        // before the work that it is to hold, as it may not be writable
  if (!routing.empty() && session.rank() == 0) {
    log.emplace(routing, logged_layers(config, place_all(config, setup->mesh.expert.size(), {})), -1);
  }
  const Evaluation evaluation = evaluate(model, *setup, counted, *data.valid, batches);
  if (session.rank() != 0) return 0;
  if (log) log->append(reader.header().step, routing_record(evaluation.routing, evaluation.tokens));

  const nlohmann::ordered_json result = summary(reader, evaluation, *data.valid);
  std::cout << (parsed.values.count("json") ? result.dump() + '\n' : text(result, data.valid->file().prefix()));
  return 0;
}

}  // namespace lyceum
