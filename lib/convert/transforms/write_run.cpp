#include <fmt/format.h>

#include <filesystem>

#include "convert/transforms/conversion.h"
#include "core/error.h"
#include "io/files/atomic_file.h"
#include "io/files/whole_file.h"
#include "train/run/run_state.h"
#include "train/run/starting_point.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;

fs::path config_file(const RunConfig& run) { return fs::path(run.dir) / "config.ini"; }

/// Returns the tensors that this rank writes: every world.size()-th one.
std::vector<CheckpointSlice> slices_of(const NewRun& run, const ProcessGroup& world) {
  std::vector<CheckpointSlice> slices;
  for (auto i = static_cast<std::size_t>(world.rank()); i < run.tensors.size();
       i += static_cast<std::size_t>(world.size())) {
    const NewRun::Weights& tensor = run.tensors[i];
    CheckpointSlice slice{.name = tensor.name, .shape = tensor.shape, .box = Box::whole(tensor.shape)};
    slice.make = tensor.make;
    slices.push_back(std::move(slice));
  }
  return slices;
}

CheckpointHeader header_of(const NewRun& run, const ProcessGroup& world) {
  Config config = run.resolved;
  remove_adapters(config.optim);  // the checkpoint has none: training adds them
  return {.run_uuid = new_run_uuid(world),
          .step = 0,
          .mesh = "none: converted",
          .config = to_ini(config),
          .trainer_state = RunState().text(),
          .tokenizer = run.tokenizer,
          .transformers = run.transformers};
}

/// Removes the checkpoint of a conversion that failed.
void remove_checkpoint(const fs::path& root) {
  std::error_code ignored;
  for (const char* name : {"step-00000000", "step-00000000.partial", "LATEST"}) fs::remove_all(root / name, ignored);
  fs::remove(root, ignored);  // fails, as intended, unless the directory is empty
}

}  // namespace

void require_no_run(const fs::path& folder) {
  require_usage(list_checkpoint_directories(folder / "checkpoints").empty(),
                "{} contains checkpoints: name another folder with --out", (folder / "checkpoints").string());
  require_usage(!fs::exists(folder / "config.ini"), "{} already exists: name another folder with --out",
                (folder / "config.ini").string());
}

void write_run(const NewRun& run, const ProcessGroup& world, const std::string& title) {
  const fs::path root = checkpoint_root(run.config.run), file = config_file(run.config.run),
                 copy = fs::path(run.config.run.dir) / run.copied_as;
  const CheckpointHeader header = header_of(run, world);
  try {
    const std::string complaint = write_checkpoint(world, root, header, slices_of(run, world));
    require(complaint.empty(), "{}", complaint);
    if (world.rank() == 0 && !run.copied_as.empty()) write_whole_file(copy, run.tokenizer);
    // Written last, so that no run can begin with this file before the weights exist.
    if (world.rank() == 0) write_whole_file(file, fmt::format("# {}\n{}", title, to_ini(run.config, run.resolved)));
  } catch (const Error&) {
    std::error_code ignored;
    if (world.rank() == 0) remove_checkpoint(root);
    if (world.rank() == 0 && !run.copied_as.empty()) fs::remove(copy, ignored);
    throw;
  }
}

void write_run(const Conversion& conversion, const CheckpointReader& source, const ProcessGroup& world,
               const std::string& title) {
  NewRun run{.config = conversion.config, .resolved = conversion.resolved, .tensors = {}};
  if (!source.tokenizer_sha256().empty()) run.tokenizer = read_whole_file(source.tokenizer());
  run.transformers = source.transformers();
  for (const Recipe& recipe : conversion.recipes) {
    run.tensors.push_back({recipe.tensor.name, recipe.tensor.shape, [&](std::span<float> values) {
                             make_tensor(recipe, source, conversion.config.run.seed, values);
                           }});
  }
  try {
    write_run(run, world, title);
  } catch (const Error&) {
    const std::string problem = source.problem();
    require_input(problem.empty(), "{}", problem);
    throw;
  }
}

}  // namespace lyceum
