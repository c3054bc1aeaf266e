#include "apps/convert_hf.h"

#include <boost/algorithm/string/join.hpp>
#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <utility>
#include <vector>

#include "apps/convert_config.h"
#include "apps/run_config.h"
#include "apps/version.h"
#include "config/check.h"
#include "convert/hugging_face/convert.h"
#include "convert/hugging_face/side_files.h"
#include "core/error.h"
#include "io/checkpoint/checkpoint.h"
#include "io/files/whole_file.h"
#include "io/text/json.h"
#include "io/text/nearest_word.h"
#include "io/text/table.h"
#include "train/setup/run_setup.h"

namespace lyceum {

namespace fs = std::filesystem;

namespace {

/// Reads a number of bytes, "500MB".
std::int64_t bytes_of(const std::string& text) {
  std::int64_t number = 0, unit = 1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  bool known = suffix.empty();
  for (const char* name : {"KB", "MB", "GB", "TB"}) {
    if (known) break;
    unit *= 1000;
    known = suffix == name;
  }
  require_usage(error == std::errc() && known && number > 0 && !__builtin_mul_overflow(number, unit, &number),
                "--shard-size = {}: give bytes, or a size such as 500MB or 5GB", text);
  return number;
}

safetensors::Type type_named(const std::string& text) {
  for (const safetensors::Type type : {safetensors::Type::f32, safetensors::Type::bf16}) {
    if (text == safetensors::name_of(type)) return type;
  }
  fail(ExitCode::usage, "--dtype = {}: must be F32 or BF16", text);
}

/// Returns the architecture named `type`, or if `type` is empty the smallest one that can represent the model.
hugging_face::Hosting hosting_of(const std::string& type, const Config& resolved) {
  if (type.empty()) return hugging_face::first_exact_host(resolved);
  std::vector<std::string> names;
  for (const hugging_face::Architecture& each : hugging_face::architectures()) names.emplace_back(each.type);
  const hugging_face::Architecture* const architecture = hugging_face::find_architecture(type);
  require_usage(architecture, "--architecture = {}: must be one of {}", type, boost::join(names, ", "));
  hugging_face::Hosting hosting = host(*architecture, resolved);
  require_usage(hosting.wrong.empty(), "{} cannot represent this model exactly: {}", architecture->model,
                boost::join(hosting.wrong, ", "));
  return hosting;
}

}  // namespace

int import_model(const MpiSession& session, const FromTo& from_to, const Arguments& arguments,
                 const LoadedConfig& given, const PrintOnce& print_once) {
  require_no_run(from_to.out);
  require_of_new_run(given);
  const hugging_face::ModelFolder model(from_to.source);
  std::vector<std::string> notes;
  const fs::path tokenizer = find_tokenizer_file(model, notes);
  if (const std::int64_t modules = model.missing_modules(); modules > 0) {
    notes.push_back(fmt::format("left out   {} of multi-token prediction, of which the files have no tensors",
                                count_text(modules, "module")));
  }
  LoadedConfig base{.config = model.config()};
  base.config.run.dir = from_to.out;
  if (!tokenizer.empty()) base.config.data.tokenizer = (fs::path(from_to.out) / tokenizer.filename()).string();
  hugging_face::Json side_files = hugging_face::side_files_of(fs::path(from_to.source));
  hugging_face::keep_reach(model.config(), side_files);
  base.config.data.chat = hugging_face::chat_of(side_files);
  for (const std::int64_t token :
       hugging_face::end_tokens_of(side_files)) {  // some files name tokens that the model does not have
    if (token >= 0 && token < model.config().model.vocab) base.config.data.end_tokens.push_back(token);
  }
  NewRun run = import_run(model, read_config(arguments, std::move(base)));
  if (given.print_config) {
    print_once(print_config({.config = run.resolved, .origin = given.origin}));
    return 0;
  }
  print_once(fmt::format("read       {} of {}\n", model.architecture().model, from_to.source));
  std::vector<TensorLine> lines;
  for (const NewRun::Weights& tensor : run.tensors) {
    lines.push_back({tensor.name, tensor.shape,
                     pattern_of(name_in_transformers(model.architecture(), run.resolved.model, tensor.name))});
  }
  print_once(tensor_table(lines));
  for (const std::string& note : notes) print_once(note + '\n');
  if (from_to.dry_run) return 0;
  const auto lock = lock_new_run(run.config, session);
  run.transformers = json_text(side_files);
  if (!tokenizer.empty() && !given.origin.contains("data.tokenizer")) {
    run.tokenizer = read_whole_file(tokenizer);
    run.copied_as = tokenizer.filename();
  }
  const std::string title = fmt::format("lyceum {}: convert {} {}", program_version(), import_hf, from_to.source);
  try {
    write_run(run, session.world(run.config.run.timeout_seconds), title);
  } catch (const Error&) {
    model.require_sound();
    throw;
  }
  print_once(fmt::format("written    {0}: lyceum train --config {0}/config.ini continues from it\n", from_to.out));
  return 0;
}

int export_checkpoint(const MpiSession& session, const FromTo& from_to, const ExportOptions& options,
                      const LoadedConfig& given, const PrintOnce& print_once) {
  hugging_face::Export made{.folder = from_to.out,
                            .data = {},
                            .type = type_named(options.dtype),
                            .shard_bytes = bytes_of(options.shard_size)};
  hugging_face::require_no_model(made.folder);
  require_usage(given.origin.empty(), "{}: export-hf does not change the configuration of the checkpoint",
                given.origin.empty() ? "" : given.origin.begin()->first);
  CheckpointReader source(resolve_checkpoint(from_to.source));
  if (from_to.ema) source.use_averages();
  const std::string problem = source.problem(CheckpointReader::Check::sizes);
  require_input(problem.empty(), "{}", problem);
  Config own = config_of_merged(source).config;
  made.data = own.data;
  const std::vector<std::string> restored = hugging_face::restore_reach(hugging_face::side_files_of(source), own);
  resolve(own, 1);
  const hugging_face::Hosting hosting = hosting_of(options.architecture, own);
  const std::vector<Recipe> recipes = host_recipes(hosting, source);
  print_once(fmt::format("exported   {}\n", hosting.architecture->model));
  for (const std::string& note : hosting.notes) print_once(note + '\n');
  for (const std::string& note : restored) print_once(note + '\n');
  std::vector<TensorLine> lines;
  for (const Recipe& recipe : recipes) {
    lines.push_back(
        line_of(recipe, name_in_transformers(*hosting.architecture, hosting.config.model, recipe.tensor.name)));
  }
  print_once(tensor_table(lines) + left_over_text(source, recipes));
  if (from_to.dry_run) return 0;
  const ProcessGroup world = session.world(own.run.timeout_seconds);
  for (const std::string& note : export_model(hosting, recipes, source, world, made)) print_once(note + '\n');
  print_once(fmt::format("written    {}\n", from_to.out));
  return 0;
}

}  // namespace lyceum
