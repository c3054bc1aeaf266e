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

/// What a checkpoint is to become.
struct ConversionRequest {
  std::string transform = {};                // of transforms()
  std::int64_t experts = 0;                  // insert: new ones of a layer; modulize: that an FFN is split into
  std::optional<Range> layers = {};          // insert: that get some; none: all that route
  std::int64_t slices = 1;                   // upcycle: that each copy is cut into
  std::filesystem::path routing = {};        // prune: a routing log, or a run's folder
  std::function<ExpertTokens()> count = {};  // prune: counts choices, where there is no log; called once all else fits
  std::string coactivation = {};  // modulize: prefix of tokens to go by; empty: units are alike in their weights
  std::int64_t sequences = 0;     // of these tokens; 0: all
  double threshold = 0;           // prune: as PruneRule's
  bool over_model = false;        // prune: likewise
};
/// Names of what there is.
std::span<const char* const> transforms();

/// A new run, not yet written.
struct Conversion {
  Config config;    // as its file says it: for any mesh
  Config resolved;  // for the fewest ranks
  std::vector<Recipe> recipes;
  std::vector<std::string> notes;  // lines for whoever asked
};

/// Of a checkpoint with the configuration `own`. `wanted`: that configuration with what the user changes of it, whose
/// keys alone have an origin; what the transform itself says of the model is added. Throws usage Errors for what cannot
/// be, bad_input Errors for a source that is not whole or not the one that a routing log is of.
Conversion convert(const ConversionRequest& request, const CheckpointReader& source, const Config& own,
                   LoadedConfig wanted);

/// Collective. Writes `config.run.dir`: config.ini, with `title` as a comment, and checkpoints/step-00000000 with new
/// moments, samples and counts. Each rank makes some of the tensors, one at a time. config.ini comes last; where
/// something fails nothing is left. A source that turns out to be damaged is a bad_input Error.
void write_run(const Conversion& conversion, const CheckpointReader& source, const ProcessGroup& world,
               const std::string& title);

/// A run of weights from anywhere, not yet written.
struct NewRun {
  struct Weights {
    std::string name;
    Shape shape;
    std::function<void(std::span<float>)> make;  // fills them when they are written
  };
  Config config;    // as its file says it
  Config resolved;  // for the fewest ranks
  std::vector<Weights> tensors;
  std::string tokenizer = {};     // bytes of the checkpoint's tokenizer.model; empty: none
  std::string transformers = {};  // text of the checkpoint's transformers.json; empty: none
  std::string copied_as = {};     // the name of a copy of it in config.run.dir; empty: none
};

/// The same of such a run; errors are those of `make` or of writing.
void write_run(const NewRun& run, const ProcessGroup& world, const std::string& title);

/// Throws a usage Error where a run's folder holds what write_run() would replace.
void require_no_run(const std::filesystem::path& folder);

}  // namespace lyceum
