#include <fmt/format.h>

#include <filesystem>

#include "core/error.h"
#include "io/files/atomic_file.h"
#include "io/files/whole_file.h"
#include "train/run_state.h"
#include "train/starting_point.h"
#include "train/transforms/conversion.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;

fs::path config_file(const RunConfig& run) { return fs::path(run.dir) / "config.ini"; }

/// Every size()-th tensor is this rank's.
std::vector<CheckpointPiece> pieces_of(const Conversion& conversion, const CheckpointReader& source,
                                       const ProcessGroup& world) {
  std::vector<CheckpointPiece> pieces;
  for (auto i = static_cast<std::size_t>(world.rank()); i < conversion.recipes.size();
       i += static_cast<std::size_t>(world.size())) {
    const Recipe& recipe = conversion.recipes[i];
    CheckpointPiece piece{
        .name = recipe.tensor.name, .shape = recipe.tensor.shape, .box = Box::whole(recipe.tensor.shape)};
    piece.make = [&, seed = conversion.config.run.seed](std::span<float> values) {
      make_tensor(recipe, source, seed, values);
    };
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

CheckpointHeader header_of(const Conversion& conversion, const CheckpointReader& source, const ProcessGroup& world) {
  CheckpointHeader header{.run_uuid = new_run_uuid(world),
                          .step = 0,
                          .mesh = "none: converted",
                          .config = to_ini(conversion.resolved),
                          .trainer_state = RunState().text()};
  if (!source.tokenizer_sha256().empty()) header.tokenizer = read_whole_file(source.tokenizer());
  return header;
}

/// What a conversion has left of its checkpoint.
void remove_checkpoint(const fs::path& root) {
  std::error_code ignored;
  for (const char* name : {"step-00000000", "step-00000000.partial", "LATEST"}) fs::remove_all(root / name, ignored);
  fs::remove(root, ignored);  // where it is empty
}

}  // namespace

void require_no_run(const fs::path& folder) {
  require_usage(list_checkpoint_directories(folder / "checkpoints").empty(),
                "{} holds checkpoints: name another folder with --out", (folder / "checkpoints").string());
  require_usage(!fs::exists(folder / "config.ini"), "{} is there already: name another folder with --out",
                (folder / "config.ini").string());
}

void write_run(const Conversion& conversion, const CheckpointReader& source, const ProcessGroup& world,
               const std::string& title) {
  const fs::path root = checkpoint_root(conversion.config.run), file = config_file(conversion.config.run);
  const CheckpointHeader header = header_of(conversion, source, world);
  try {
    const std::string complaint = write_checkpoint(world, root, header, pieces_of(conversion, source, world));
    require(complaint.empty(), "{}", complaint);
    // Last: nobody trains by it before the weights are there.
    if (world.rank() == 0) write_whole_file(file, fmt::format("# {}\n{}", title, to_ini(conversion.config)));
  } catch (const Error&) {
    if (world.rank() == 0) remove_checkpoint(root);
    const std::string problem = source.problem();
    require_input(problem.empty(), "{}", problem);
    throw;
  }
}

}  // namespace lyceum
