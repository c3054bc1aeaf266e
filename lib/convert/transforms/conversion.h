#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/binding.h"
#include "convert/transforms/experts.h"
#include "convert/transforms/recipe.h"
#include "core/range.h"

namespace lyceum {

/// A transform of a checkpoint and its options.
struct ConversionRequest {
  std::string transform = {};          // one of transforms()
  std::int64_t experts = 0;            // insert: new experts per layer; modulize: experts per FFN
  Site site = Site::ffn;               // insert, prune: the half of the blocks whose experts are changed
  std::optional<Range> layers = {};    // insert: layers that get experts; by default all that have some
  std::int64_t slices = 1;             // upcycle: slices per copy of an FFN
  std::filesystem::path routing = {};  // prune: a routing log or a run's folder; empty if `count` is set
  /// prune: returns the tokens of each expert if there is no log; set if and only if `routing` is empty. convert()
  /// calls it after it has checked the request, so it may take long.
  std::function<ExpertTokens()> count = {};
  /// modulize: path prefix of the tokens on which co-activation of units is measured; empty: units are grouped by
  /// weights.
  std::string coactivation = {};
  std::int64_t sequences = 0;  // modulize: number of samples of these tokens to use; 0: all
  double threshold = 0;        // prune: see PruneRule; above 0, at most 1
  bool over_model = false;     // prune: see PruneRule
};
/// Returns the names of all transforms:
/// - reset: copies the weights unchanged;
/// - merge: the same for a checkpoint with adapters, which its reader has merged into the weights;
/// - upcycle: makes experts of copies of dense FFNs;
/// - insert: adds experts with initial values, to FFNs or to attention;
/// - prune: removes rarely used experts of FFNs or of attention;
/// - modulize: divides dense FFNs into experts.
std::span<const char* const> transforms();

/// The result of a transform: a new run that is not written yet.
struct Conversion {
  Config config;    // as in its file, not resolved: for any mesh
  Config resolved;  // resolved for the smallest possible number of ranks
  std::vector<Recipe> recipes;
  std::vector<std::string> notes;  // lines for the user
};

/// Plans a transform of the checkpoint `source`, whose resolved configuration is `own`. If the checkpoint has adapters,
/// `source` must have merged them (CheckpointReader::merge_adapters()), and `own` must have none. `wanted` is the
/// configuration of the new run before the transform's own changes: `own` with the user's changes, which alone have an
/// origin. The caller sets run.dir, and resets keys that refer to the old mesh or to tensors of the old model
/// (optim.train_only, optim.router_penalty). Throws a usage Error for an invalid request or configuration, and a
/// bad_input Error if the checkpoint is incomplete or the routing log is of another model. Throws a failed Error if
/// `transform` is not one of transforms().
Conversion convert(const ConversionRequest& request, const CheckpointReader& source, const Config& own,
                   LoadedConfig wanted);

/// Collective. Writes the run to `config.run.dir`: config.ini, with `title` as a comment, and checkpoints/step-00000000
/// with neither optimiser state nor counts of samples. The tensors are shared out over the ranks, which compute one at
/// a time. config.ini is written last. If anything fails, the written files are removed. Throws a bad_input Error if
/// the source is damaged.
void write_run(const Conversion& conversion, const CheckpointReader& source, const ProcessGroup& world,
               const std::string& title);

/// A new run with weights from any source, not written yet.
struct NewRun {
  /// A tensor of the checkpoint.
  struct Weights {
    std::string name;
    Shape shape;
    std::function<void(std::span<float>)> make;  // computes the values into a buffer when they are written
  };
  Config config;    // as in its file, not resolved
  Config resolved;  // resolved for the smallest possible number of ranks
  std::vector<Weights> tensors;
  std::string tokenizer = {};     // bytes of the checkpoint's tokenizer.model; empty if none
  std::string transformers = {};  // text of the checkpoint's transformers.json; empty if none
  std::string copied_as = {};     // file in config.run.dir to which `tokenizer` is also written; empty: none
};

/// Collective. Writes `run` as the overload above writes a Conversion, and also removes its files if anything fails.
/// Throws the errors of `make` and of write_checkpoint().
void write_run(const NewRun& run, const ProcessGroup& world, const std::string& title);

/// Throws a usage Error if the folder has checkpoints or a config.ini, which write_run() would replace.
void require_no_run(const std::filesystem::path& folder);

}  // namespace lyceum
