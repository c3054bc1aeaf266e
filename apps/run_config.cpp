#include "apps/run_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <ranges>
#include <set>

#include "apps/convert_text.h"
#include "apps/output.h"
#include "config/check.h"
#include "config/keys.h"
#include "io/checkpoint/contents.h"
#include "io/checkpoint/unit_tensors.h"
#include "io/data/tokens/data_sources.h"
#include "io/files/sha256.h"
#include "io/text/table.h"
#include "model/model_tensors.h"
#include "train/run/config_file.h"

namespace lyceum {

namespace {

/// Prints on rank 0. Returns nothing, for a command that is then finished.
std::nullopt_t print_and_finish(const MpiSession& session, const std::string& text) {
  if (session.rank() == 0) print_exactly(text);
  return std::nullopt;
}

/// Returns the number of ranks for --print-config: the ranks that run, or the fewest possible ones if these do not suit
/// the mesh or the batch.
int ranks_to_print_for(const Config& config, int ranks) {
  if (contradictions(config, ranks).empty()) return ranks;
  return static_cast<int>(std::min<std::int64_t>(fewest_ranks(config.parallel), 1 << 20));
}

/// Throws one usage Error with all mistakes; resolves the configuration for this world and its hosts. Returns false if
/// it was only to be printed.
bool check(const MpiSession& session, LoadedConfig& loaded, int first_stage = 1) {
  std::vector<std::string> wrong = loaded.mistakes;
  const auto require_possible = [&](std::vector<std::string> found) {
    std::ranges::move(found, std::back_inserter(wrong));
    require_none(wrong);
  };
  if (loaded.print_config) {  // works on any number of ranks, and in a build for another device
    const int ranks = ranks_to_print_for(loaded.config, session.size());
    require_possible(contradictions(loaded.config, ranks));
    resolve(loaded.config, ranks);
    const std::string note =
        ranks == session.size() ? "" : fmt::format("# derived for {}\n", count_text(ranks, "rank"));
    print_and_finish(session, note + print_config(loaded));
    return false;
  }
  require_possible(problems(loaded.config, session.size(), first_stage));
  resolve(loaded.config, session.size());
  ParallelConfig& parallel = loaded.config.parallel;
  if (parallel.host_ranks == 0) parallel.host_ranks = session.host_ranks();
  require_usage(
      parallel.dispatch != DispatchKind::hierarchical || parallel.host_ranks > 0,
      "parallel.dispatch = hierarchical, but hosts have different numbers of ranks, or ranks that are not consecutive: "
      "start the same number of consecutive ranks on each (mpirun --map-by core), or set parallel.host_ranks");
  return true;
}

/// Resets numbers in the checkpoint's configuration to their defaults if this build refuses them and only training uses
/// them.
void drop_refused(LoadedConfig& loaded, const LoadedConfig& given) {
  Config initial;
  const std::vector<ConfigKey> keys = keys_of(loaded.config), defaults = keys_of(initial);
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const std::string& name = keys[k].name;
    const bool trains = std::ranges::any_of(std::array{"optim.", "balance.", "checkpoint.", "routing.", "run."},
                                            [&](const char* section) { return name.starts_with(section); });
    if (!trains || given.origin.contains(name) || keys[k].setting.problem().empty()) continue;
    keys[k].setting.assign(defaults[k].setting.text());
    loaded.origin.erase(name);
  }
}

/// True if the command line has the key.
bool on_command_line(const LoadedConfig& given, const std::string& key) {
  const auto origin = given.origin.find(key);
  return origin != given.origin.end() && origin->second.file.empty();
}

/// Throws unless a config.ini of a run's folder names that folder as run.dir.
void require_own_folder(const LoadedConfig& loaded) {
  const auto origin = loaded.origin.find("run.dir");
  if (origin == loaded.origin.end() || origin->second.file.empty()) return;
  lyceum::require_own_folder(origin->second.file, loaded.config.run.dir);
}

/// Uses the checkpoint's tokenizer. Throws a bad_input Error if the arguments name another one.
void take_tokenizer(const CheckpointReader& reader, LoadedConfig& loaded, const LoadedConfig& given) {
  if (reader.tokenizer_sha256().empty()) return;
  const std::string own = reader.tokenizer().string();
  std::string& name = loaded.config.data.tokenizer;
  if (given.origin.contains("data.tokenizer") && !name.empty()) {
    require_input(digest_of_file(name).sha256 == reader.tokenizer_sha256(),
                  "data.tokenizer = {} is not the tokenizer that {} was trained with: remove this key, the checkpoint "
                  "contains its own",
                  name, reader.directory().string());
  } else {
    name = own;
    loaded.origin.erase("data.tokenizer");
  }
}

}  // namespace

std::optional<LoadedConfig> configure(const MpiSession& session, LoadedConfig loaded, int first_stage) {
  if (loaded.list_keys) return print_and_finish(session, list_keys());
  if (!loaded.print_config) require_own_folder(loaded);
  if (!check(session, loaded, first_stage)) return {};
  return loaded;
}

void take_stage(LoadedConfig& loaded, std::int64_t step, const LoadedConfig& given) {
  const int last = stage_of_step(loaded.config, step);
  for (int stage = 2; stage <= last; ++stage) {
    auto& values = loaded.config.training_stages[static_cast<std::size_t>(stage) - 2].values;
    std::erase_if(values, [&](const auto& value) { return on_command_line(given, value.first); });
    for (const auto& [key, value] : values) {
      const auto origin = loaded.origin.find(fmt::format("stage.{}.{}", stage, key));
      if (origin != loaded.origin.end()) loaded.origin[key] = origin->second;
    }
  }
  loaded.config = config_of_stage(loaded.config, last);
  loaded.config.division_batch.reset();  // a reader divides the model for its own batch
}

LoadedConfig config_of(const CheckpointReader& reader) {
  try {
    LoadedConfig loaded = parse_config(reader.header().config, reader.directory().string() + ":config");
    take_stage(loaded, reader.header().step);
    return loaded;
  } catch (const Error& error) {
    fail(ExitCode::bad_input, "{}", error.what());
  }
}

namespace {

/// Resets the keys of adapters.
void leave_out_adapters(LoadedConfig& loaded) {
  remove_adapters(loaded.config.optim);
  std::erase_if(loaded.origin, [](const auto& given) { return given.first.starts_with("optim.lora_"); });
}

}  // namespace

LoadedConfig config_of_merged(CheckpointReader& reader) {
  LoadedConfig loaded = config_of(reader);
  const OptimConfig& optim = loaded.config.optim;
  require_input(reader.has_adapters() == (optim.lora_rank > 0),
                "{}: optim.lora_rank = {} in its configuration, but it {} adapters", reader.directory().string(),
                optim.lora_rank, reader.has_adapters() ? "has" : "has no");
  if (optim.lora_rank > 0) reader.merge_adapters(adapter_scale(optim));
  leave_out_adapters(loaded);
  return loaded;
}

LoadedConfig without_mesh(LoadedConfig loaded) {
  loaded.config.parallel = {};
  loaded.config.run.device = RunConfig{}.device;
  loaded.config.batch.micro = 0;
  for (TrainingStage& stage : loaded.config.training_stages) stage.values.erase("batch.micro");
  std::erase_if(loaded.origin, [](const auto& given) {
    return given.first.starts_with("parallel.") || given.first == "run.device" || given.first == "batch.micro";
  });
  return loaded;
}

namespace {

/// Warns of weights of the checkpoint that the configured model does not have.
void warn_of_unused_weights(const CheckpointReader& reader, const Config& config) {
  constexpr std::size_t most_listed = 3;
  std::set<std::string> names, unused;
  for (const ModelTensor& tensor : model_tensors(config)) names.insert(tensor.name);
  for (const CheckpointReader::Entry& entry : reader.tensors()) {
    const std::string& name = entry.name;
    const bool trains = is_optimizer_state(name) || is_adapter(name) || name.starts_with("model/mtp/");
    if (!trains && !names.contains(name)) unused.insert(pattern_of(name));
  }
  if (unused.empty()) return;
  const auto listed = unused | std::views::take(most_listed);
  fmt::print(stderr, "warning: {} has weights that this configuration does not use: {}{}\n",
             reader.directory().string(), fmt::join(listed, ", "), unused.size() > most_listed ? ", …" : "");
}

}  // namespace

std::optional<CheckpointRun> configure_reader(const MpiSession& session, std::string path, const Arguments& arguments) {
  const LoadedConfig given = read_config(arguments);
  if (given.list_keys) return print_and_finish(session, list_keys());
  if (path.empty()) {
    require_none(given.mistakes);
    require_usage(!given.origin.empty(),
                  "--checkpoint is missing: name a checkpoint or the directory of a run, or set run.dir");
    require_own_folder(given);
    path = given.config.run.dir;
  }
  CheckpointReader reader(resolve_checkpoint(path));
  LoadedConfig own = config_of_merged(reader);
  LoadedConfig loaded = read_config(arguments, without_mesh(own));
  leave_out_adapters(loaded);
  take_stage(loaded, reader.header().step, given);  // if a file has stages
  drop_refused(loaded, given);
  const auto asked_for = [&](const char* key) { return on_command_line(given, key); };
  require_usage(!asked_for("moe.top_k_start"), "moe.top_k_start applies to training only: set moe.top_k");
  loaded.config.moe.top_k_start = 0;
  loaded.origin.erase("moe.top_k_start");
  require_usage(!asked_for("mtp.depth") || loaded.config.mtp.depth == 0,
                "mtp.depth applies to training only: only training runs the modules of multi-token prediction");
  require_usage(!asked_for("model.consistency") || loaded.config.model.consistency == 0,
                "model.consistency applies to training only: only training reads samples twice");
  loaded.config.mtp = own.config.mtp = {};
  loaded.config.model.consistency = own.config.model.consistency = 0;
  loaded.origin.erase("model.consistency");
  loaded.origin.erase("mtp.depth");
  loaded.origin.erase("mtp.weight");
  if (!asked_for("moe.capacity_factor")) {
    loaded.config.moe.capacity_factor = 0;
    loaded.origin.erase("moe.capacity_factor");
  }
  take_tokenizer(reader, loaded, given);
  const std::int64_t global_batch = loaded.config.batch.global;
  // A --config file may be that of training, made for another number of ranks. The command line is meant for this
  // number.
  const bool own_batch = std::ranges::any_of(
      given.origin, [](const auto& key) { return key.first.starts_with("batch.") && key.second.file.empty(); });
  if (!own_batch) {
    const std::int64_t ranks = session.size();
    loaded.config.batch.global = (global_batch + ranks - 1) / ranks * ranks;
    if (loaded.config.batch.global != global_batch) loaded.origin.erase("batch.global");
  }
  if (!check(session, loaded)) return {};
  if (session.rank() == 0) warn_of_unused_weights(reader, loaded.config);
  return CheckpointRun{.reader = std::move(reader),
                       .config = std::move(loaded.config),
                       .own = std::move(own.config),
                       .global_batch = global_batch};
}

StagedModel weights_of(const CheckpointRun& run, const RunSetup& setup) {
  StagedModel model(run.config, setup.stream, setup.mesh, working_type(run.config.run), false);
  load_weights(run.reader, setup.stream, model.units());
  return model;
}

Tokenizer tokenizer_of(const CheckpointRun& run) {
  const DataConfig& data = run.config.data;
  require_usage(!data.tokenizer.empty(), "data.tokenizer is not set: name the tokenizer of these tokens");
  Tokenizer tokenizer(data.tokenizer);
  if (run.reader.tokenizer_sha256().empty()) {  // otherwise the tokenizer is the checkpoint's own
    std::vector<std::string> prefixes;
    for (const DataSource& source : data_sources("data.train", data.train)) prefixes.push_back(source.prefix);
    for (const DataSource& source : data_sources("data.valid", data.valid)) prefixes.push_back(source.prefix);
    require_one_tokenizer(data.tokenizer, digest_of_file(data.tokenizer).sha256, prefixes);
  }
  return tokenizer;
}

}  // namespace lyceum
