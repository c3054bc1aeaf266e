#include <boost/algorithm/string/join.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/convert_average.h"
#include "apps/convert_config.h"
#include "apps/convert_hf.h"
#include "apps/convert_text.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/run_config.h"
#include "apps/version.h"
#include "apps/written_files.h"
#include "config/check.h"
#include "convert/transforms/conversion.h"
#include "core/error.h"
#include "core/real_text.h"
#include "io/checkpoint/unit_tensors.h"
#include "io/text/nearest_word.h"
#include "io/text/table.h"
#include "train/eval/evaluator.h"
#include "train/setup/run_setup.h"

namespace lyceum {

namespace po = boost::program_options;

namespace {

constexpr std::size_t most_words = 1000;  // a transform and the checkpoints that it averages

constexpr const char* convert_about =
    R"(Creates a new run from a checkpoint, whose model is transformed:
  reset      keep the model; copy only the weights, for fine-tuning
  merge      keep the model; add its adapters (optim.lora_rank) to the weights, as all transforms do
  upcycle    copy each dense FFN to --moe.experts experts, of which --moe.top_k are chosen; with --slices M each copy
             is split into M experts of 1/M the width, and M times as many are chosen
  insert     add --experts N new experts to each layer, or to each of --layers; with --site attention to attention
  prune      remove experts that were chosen less than --threshold times as often as the most used one, according to
             --routing or --data; with --site attention those of attention
  modulize   split each dense FFN into --experts N equal experts of similar units, all of which are chosen
  average    the mean of the weights of several checkpoints of one model, with --weights W1,W2,… the weighted mean
  import-hf  SOURCE is the folder of a model that Hugging Face's transformers saved
  export-hf  RUN becomes such a folder, with the same model
SOURCE is a checkpoint, or a directory of checkpoints or of a run: the checkpoint that LATEST names. Its configuration
is used without the mesh; --section.key=value changes it. RUN contains config.ini and checkpoints/step-00000000, from
which `lyceum train --config RUN/config.ini` continues with new moments. Under mpirun the ranks share the work.)";

struct ConvertOptions {
  std::string out, layers, scope = "layer", by = "weights", data, site = "ffn";
  std::int64_t batches = 0;
  ConversionRequest request;
  ExportOptions exported;
  std::string weights;
  bool ema = false;
};

po::options_description convert_options(ConvertOptions& options) {
  ConversionRequest& request = options.request;
  po::options_description described;
  auto add = described.add_options();
  add("out", po::value(&options.out)->value_name("RUN"), "folder to create");
  add("dry-run", "print what would be created, and write nothing");
  add("slices", po::value(&request.slices)->value_name("M"), "upcycle: experts that each copy is split into");
  add("experts", po::value(&request.experts)->value_name("N"),
      "insert: number of new experts; modulize: total number of experts");
  add("site", po::value(&options.site)->value_name("ffn | attention")->default_value(options.site),
      "insert, prune: change the experts of FFNs, or those of attention (model.attention = moa)");
  add("layers", po::value(&options.layers)->value_name("A-B"),
      "insert: layers that get new experts, counted from 0; default: all");
  add("routing", po::value<std::string>()->value_name("FILE"), "prune: a routing.h5, or a run's folder");
  add("threshold", po::value(&request.threshold)->value_name("T"),
      "prune: smallest share to keep, relative to the most used expert");
  add("scope", po::value(&options.scope)->value_name("layer | model")->default_value(options.scope),
      "prune: compare with the most used expert of the layer or of the model");
  add("data", po::value(&options.data)->value_name("PREFIX"),
      "prune: instead of --routing, tokens to count choices on, and to report the loss on; "
      "modulize: tokens for --by coactivation");
  add("batches", po::value(&options.batches)->value_name("N")->default_value(options.batches),
      "batches of batch.global sequences to read from --data, evenly spread; 0: all");
  add("by", po::value(&options.by)->value_name("weights | coactivation")->default_value(options.by),
      "modulize: group units with similar weights, or units that are active for the same tokens");
  add("weights", po::value(&options.weights)->value_name("W1,W2,…"),
      "average: the weight of each checkpoint, in their order; default: equal weights");
  add("ema", po::bool_switch(&options.ema), "all but import-hf: use the moving average of the weights (optim.ema)");
  add("architecture", po::value(&options.exported.architecture)->value_name("NAME"),
      "export-hf: model_type to export to; default: the first that represents the model exactly");
  add("dtype", po::value(&options.exported.dtype)->value_name("F32 | BF16")->default_value(options.exported.dtype),
      "export-hf: type of the weights");
  add("shard-size",
      po::value(&options.exported.shard_size)->value_name("N")->default_value(options.exported.shard_size),
      "export-hf: largest size of a file of weights in bytes, or with KB, MB or GB (powers of 1000)");
  return described;
}

/// Returns the options that only some transforms accept: option → transforms.
const std::map<std::string, std::set<std::string>>& own_options() {
  static const std::map<std::string, std::set<std::string>> all{{"slices", {"upcycle"}},
                                                                {"experts", {"insert", "modulize"}},
                                                                {"site", {"insert", "prune"}},
                                                                {"layers", {"insert"}},
                                                                {"routing", {"prune"}},
                                                                {"threshold", {"prune"}},
                                                                {"scope", {"prune"}},
                                                                {"by", {"modulize"}},
                                                                {"data", {"prune", "modulize"}},
                                                                {"batches", {"prune", "modulize"}},
                                                                {"weights", {"average"}},
                                                                {"architecture", {"export-hf"}},
                                                                {"dtype", {"export-hf"}},
                                                                {"shard-size", {"export-hf"}}};
  return all;
}

/// Reads a range of layers, "2" or "1-3", counted from 0.
Range layers_of(const std::string& text) {
  Range range;
  const char *begin = text.data(), *end = begin + text.size();
  std::int64_t last = 0;
  auto [at, error] = std::from_chars(begin, end, range.first);
  last = range.first;
  if (error == std::errc() && at != end && *at == '-') {
    const auto second = std::from_chars(at + 1, end, last);
    at = second.ptr;
    error = second.ec;
  }
  constexpr std::int64_t most = 1 << 30;
  require_usage(error == std::errc() && at == end && range.first >= 0 && last >= range.first && last < most,
                "--layers = {}: give one layer, or a range such as 1-3", text);
  range.count = last - range.first + 1;
  return range;
}

/// Returns the conversion that the words and options request. Throws a usage Error if they are invalid.
ConversionRequest request_of(const ParsedOptions& parsed, ConvertOptions& options) {
  ConversionRequest request = options.request;
  std::vector<std::string> known(transforms().begin(), transforms().end());
  known.insert(known.end(), {average, import_hf, export_hf});
  require_usage(!parsed.words.empty(), "no transform given: expected one of {}; see --help", boost::join(known, ", "));
  request.transform = parsed.words[0];
  const bool is_known = std::ranges::find(known, request.transform) != known.end();
  const std::string meant = is_known ? "" : nearest_word(request.transform, known);
  require_usage(is_known, "no such transform '{}': {}", request.transform,
                meant.empty() ? "expected one of " + boost::join(known, ", ") : "did you mean " + meant + "?");
  const bool averages = request.transform == average;
  require_usage(averages ? parsed.words.size() > 1 : parsed.words.size() == 2, "{} needs {}", request.transform,
                averages                         ? "checkpoints or runs"
                : request.transform == import_hf ? "one folder"
                                                 : "one checkpoint or run");
  require_usage(!options.out.empty(), "--out is missing: name the folder to create");
  require_outside_checkpoints("--out", options.out);
  require_usage(!options.ema || request.transform != import_hf, "--ema does not apply to {}", import_hf);
  for (const auto& [option, owners] : own_options()) {
    const bool used = parsed.values.count(option) && !parsed.values[option].defaulted();
    require_usage(!used || owners.contains(request.transform), "--{} does not apply to {}", option, request.transform);
  }
  require_usage(options.scope == "layer" || options.scope == "model", "--scope = {}: must be layer or model",
                options.scope);
  require_usage(options.site == "ffn" || options.site == "attention", "--site = {}: must be ffn or attention",
                options.site);
  request.site = options.site == "attention" ? Site::attention : Site::ffn;
  const bool together = options.by == "coactivation";
  require_usage(options.by == "weights" || together, "--by = {}: must be weights or coactivation", options.by);
  require_usage(request.transform != "modulize" || together != options.data.empty(),
                "--data: modulize needs it with --by = coactivation, and does not use it otherwise");
  require_usage(options.batches >= 0, "--batches = {}: must be 0 (all of the data) or more", options.batches);
  require_usage(!options.data.empty() || options.batches == 0, "--batches needs --data");
  if (!options.layers.empty()) request.layers = layers_of(options.layers);
  if (parsed.values.count("routing")) request.routing = parsed.values["routing"].as<std::string>();
  request.over_model = options.scope == "model";
  return request;
}

/// Evaluates the checkpoint's model on the tokens that the options name: mean loss and routing. Collective.
Evaluation measured(const MpiSession& session, const CheckpointReader& checkpoint, Config config,
                    const ConvertOptions& options) {
  config.data.valid = options.data;
  config.mtp = {};
  config.model.consistency = 0;
  config.moe.top_k_start = 0;
  config.moe.capacity_factor = 0;
  const std::int64_t ranks = session.size(), samples = config.batch.global;
  if (config.batch.micro == 0) config.batch.micro = 1;  // needs the least memory
  if (!checkpoint.tokenizer_sha256().empty()) config.data.tokenizer = checkpoint.tokenizer().string();
  config.batch.global = (samples + ranks - 1) / ranks * ranks;
  require_none(problems(config, session.size()));
  resolve(config, session.size());
  const auto setup = set_up(config, session, Reading::evaluate);
  const RunData data = open_data(config, *setup, false);
  StagedModel model(config, setup->stream, setup->mesh, working_type(config.run), false);
  load_weights(checkpoint, setup->stream, model.units());
  config.batch.global = samples;  // with --batches the number of samples does not depend on the number of ranks
  return evaluate(model, *setup, config, data.valid, options.batches).whole;
}

}  // namespace

CommandHelp convert_help() {
  ConvertOptions defaults;
  return describe_configured("lyceum convert TRANSFORM SOURCE… --out RUN [options] [--section.key=value …]",
                             convert_about, convert_options(defaults));
}

int convert_command(const MpiSession& session, const Arguments& arguments) {
  ConvertOptions options;
  const ParsedOptions parsed = parse_options(convert_options(options), arguments, most_words);
  if (parsed.help) {
    if (session.rank() == 0) print(convert_help().text);
    return 0;
  }
  const LoadedConfig given = read_config(parsed.rest);
  const PrintOnce print_once = [&](const std::string& text) {
    if (session.rank() == 0) print(text);
  };
  if (given.list_keys) {
    print_once(list_keys());
    return 0;
  }
  ConversionRequest request = request_of(parsed, options);
  const bool dry_run = parsed.values.count("dry-run");
  if (request.transform == import_hf) {
    return import_model(session, {parsed.words[1], options.out, dry_run}, parsed.rest, given, print_once);
  }
  if (request.transform == export_hf) {
    return export_checkpoint(session, {parsed.words[1], options.out, dry_run, options.ema}, options.exported, given,
                             print_once);
  }
  require_no_run(options.out);
  if (request.transform == average) {
    const Averaging averaging{.sources = {parsed.words.begin() + 1, parsed.words.end()},
                              .weights = parsed.values.count("weights") ? std::optional(options.weights) : std::nullopt,
                              .out = options.out,
                              .ema = options.ema,
                              .dry_run = dry_run};
    return average_checkpoints(session, averaging, parsed.rest, given, print_once);
  }
  CheckpointReader source(resolve_checkpoint(parsed.words[1]));
  if (options.ema) source.use_averages();
  const LoadedConfig own = config_of_merged(source);
  const LoadedConfig wanted = converted_config(own, source.header().step, options.out, parsed.rest, given);
  const auto print_loss = [&](const char* when, const Evaluation& evaluation) {
    print_once(fmt::format("{:<10} {} nats per token on {} of {}\n", when, real_text(evaluation.loss, ".6f"),
                           count_text(evaluation.tokens, "token"), options.data));
  };
  const bool measures = request.transform == "prune" && !options.data.empty();
  if (request.transform == "modulize") {
    request.coactivation = options.data;
    const std::int64_t global = wanted.config.batch.global;
    const bool all = options.batches > std::numeric_limits<std::int64_t>::max() / global;
    request.sequences = all ? 0 : options.batches * global;
  }
  if (measures) {
    request.count = [&] {
      const Evaluation before = measured(session, source, wanted.config, options);
      print_loss("before", before);
      return tokens_of_experts(before.routing, request.site);
    };
  }
  const Conversion conversion = convert(request, source, own.config, wanted);
  if (given.print_config) {
    print_once(print_config({.config = conversion.resolved, .origin = given.origin}));
    return 0;
  }
  print_once(left_out_stages(given, source.header().step, options.out));
  for (const std::string& note : conversion.notes) print_once(note + '\n');
  std::vector<TensorLine> lines;
  for (const Recipe& recipe : conversion.recipes) lines.push_back(line_of(recipe));
  print_once(changes_text(own.config, conversion.resolved) + tensor_table(lines) +
             left_over_text(source, conversion.recipes));
  if (dry_run) return 0;
  const auto lock = lock_new_run(conversion.config, session);
  const std::string title =
      fmt::format("lyceum {}: convert {} {}", program_version(), request.transform, source.directory().string());
  write_run(conversion, source, session.world(conversion.config.run.timeout_seconds), title);
  if (measures) {
    const CheckpointReader made(resolve_checkpoint(options.out));
    print_loss("after", measured(session, made, conversion.config, options));
  }
  print_once(fmt::format("written    {0}: lyceum train --config {0}/config.ini continues from it\n", options.out));
  return 0;
}

}  // namespace lyceum
