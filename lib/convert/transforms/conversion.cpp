#include "convert/transforms/conversion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <utility>

#include "config/check.h"
#include "convert/transforms/insertion_notes.h"
#include "convert/transforms/unit_groups.h"
#include "core/error.h"
#include "io/routing/merge.h"
#include "io/text/table.h"
#include "model/adapters.h"
#include "model/model_tensors.h"
#include "model/routing/mixture.h"
#include "model/routing/router.h"
#include "model/sublayer_tensor.h"

namespace lyceum {

namespace {

constexpr std::array transform_names{"reset", "merge", "upcycle", "insert", "prune", "modulize"};

/// Returns the tensors of the target that are not copied unchanged, given its resolved configuration.
using SpecialPartsOf = std::function<SpecialParts(const Config& resolved)>;

/// The input of a transform, and the configuration and notes that it changes.
struct Task {
  const ConversionRequest& request;
  const CheckpointReader& source;
  const Config& own;
  std::int64_t blocks;  // of the checkpoint: those of `own`, and those of modules that are left out
  LoadedConfig& wanted;
  std::vector<std::string>& notes;

  MoeConfig& moe() const { return wanted.config.moe; }
  bool given(const char* key) const { return wanted.origin.contains(key); }
  /// Throws a usage Error if the user has set one of these keys, which the transform determines.
  void require_free(std::span<const char* const> keys) const {
    for (const char* key : keys)
      require_usage(!given(key), "{} cannot be set: {} determines it", key, request.transform);
  }
};

std::vector<std::int64_t> sparse_layers(const Config& config) {
  return numbers_from(config.model.first_dense_layers,
                      std::max<std::int64_t>(config.model.layers - config.model.first_dense_layers, 0));
}

/// Returns the blocks with sparse FFNs, those of modules of multi-token prediction included.
std::vector<std::int64_t> sparse_blocks(const Config& config) {
  std::vector<std::int64_t> blocks = numbers_from(0, all_blocks(config));
  std::erase_if(blocks, [&](std::int64_t block) { return !is_sparse(config, block); });
  return blocks;
}

/// Throws a usage Error if the model has modules of multi-token prediction, for a transform that does not change them.
void require_no_modules(const Task& task) {
  require_usage(task.wanted.config.mtp.depth == 0,
                "mtp.depth = {}: {} cannot change the modules of multi-token prediction: leave them out with "
                "--mtp.depth=0",
                task.wanted.config.mtp.depth, task.request.transform);
}

void require_dense(const Task& task) {
  const MoeConfig& moe = task.own.moe;
  require_usage(moe.experts == 0 && moe.shared_experts == 0,
                "{} is for dense models: this one has {} routed and {} shared experts", task.request.transform,
                moe.experts, moe.shared_experts);
  require_usage(task.moe().shared_experts == 0, "moe.shared_experts = {}: {} creates only routed experts",
                task.moe().shared_experts, task.request.transform);
  require_usage(
      task.moe().expert_sizes.empty() && task.moe().experts_of_layers.empty(),
      "moe.expert_sizes and moe.experts_of_layers: {} creates the same number of experts of one width in every layer",
      task.request.transform);
  require_usage(task.moe().zero_experts == 0 && task.moe().copy_experts == 0,
                "moe.zero_experts and moe.copy_experts: {} creates only experts with weights", task.request.transform);
}

/// Throws a usage Error if FFNs have biases. Experts that are parts of an FFN would each add the bias of its output.
void require_no_ffn_bias(const Task& task) {
  require_usage(!task.own.model.ffn_bias, "model.ffn_bias = true: {} cannot divide FFNs with biases",
                task.request.transform);
}

SpecialPartsOf same_tensors(const Task&) {
  return [](const Config&) { return SpecialParts(); };
}

SpecialPartsOf merged(const Task& task) {
  require_usage(task.source.has_adapters(), "{} has no adapters to merge: only runs with optim.lora_rank save some",
                task.source.directory().string());
  return same_tensors(task);
}

/// Makes experts of E copies of each FFN. With m slices per copy there are m·E experts, of which m·k are chosen. All
/// slices of a copy begin with the same row of the router, and so have the same score: a token chooses all slices of k
/// copies. With renormalised gates, the m slices of a copy with gate g have g/m each (Σ g = 1). Their outputs are
/// therefore scaled by m (FfnCut::output_scale), and by the inverse of moe.routed_scale, so that the sum is the output
/// of the FFN.
SpecialPartsOf upcycled(const Task& task) {
  const std::int64_t slices = task.request.slices, width = task.own.model.ffn_hidden;
  require_dense(task);
  task.require_free(std::array{"moe.expert_hidden"});
  MoeConfig& moe = task.moe();
  const std::int64_t copies = moe.experts;
  require_usage(copies > 0, "set the number of copies of each FFN: --moe.experts");
  require_usage(slices >= 1 && width % slices == 0, "--slices = {} does not divide the FFNs' width of {}", slices,
                width);
  require_usage(slices == 1 || moe.router != RouterKind::hash,
                "--slices = {} with moe.router = hash, which chooses one expert per token", slices);
  require_usage(slices == 1 || moe.router != RouterKind::uniform,
                "--slices = {} with moe.router = uniform, which does not choose all slices of a copy together", slices);
  if (slices > 1) require_no_ffn_bias(task);
  moe.experts *= slices;
  moe.top_k *= slices;
  moe.top_k_start *= slices;
  moe.expert_hidden = width / slices;
  if (!task.given("moe.gates")) {
    moe.gates = moe.router == RouterKind::hash ? Gates::ones : Gates::renormalized;
  }
  return [=](const Config& resolved) {
    FfnCut cut{.layers = {},
               .output_scale = static_cast<float>(static_cast<double>(slices) / resolved.moe.routed_scale),
               .slices = slices};
    for (const std::int64_t block : sparse_blocks(resolved))
      cut.layers[block] = copies_in_slices(width, copies, slices);
    return experts_of_ffns(resolved, cut);
  };
}

/// Adds a note for the user if the router chooses groups of experts, which the transform changes.
void note_groups(const Task& task) {
  const std::int64_t limit = task.moe().group_limit;
  if (task.request.site != Site::ffn || limit == 0) return;
  task.notes.push_back(fmt::format(
      "moe.group_limit = {}: the groups, equal parts of the list of experts, have other experts than before, "
      "so any token may choose others",
      limit));
}

SpecialPartsOf inserted(const Task& task) {
  const ConversionRequest& request = task.request;
  constexpr std::int64_t most = 65536;  // the limit of moe.experts
  require_usage(request.experts > 0 && request.experts <= most,
                "--experts = {}: give the number of new experts per layer, 1 to {}", request.experts, most);
  require_usage(!request.layers || request.layers->end() <= task.own.model.layers,
                "--layers names layer {}: the model has {}, counted from 0",
                request.layers ? request.layers->end() - 1 : 0, count_text(task.own.model.layers, "layer"));
  const Site site = request.site;
  task.require_free(keys_of_experts(site));
  const std::vector<std::int64_t> all =
      site == Site::ffn ? sparse_layers(task.own) : numbers_from(0, task.own.model.layers);
  const std::vector<std::int64_t> layers =
      request.layers ? numbers_from(request.layers->first, request.layers->count) : all;
  const ExpertOrigins origins = origins_with_insertions(task.own, site, request.experts, layers);
  set_experts(task.wanted.config, site, origins);
  note_groups(task);
  if (task.wanted.config.optim.train_only.empty()) {
    std::ranges::move(insertion_notes(task.wanted.config, site, origins), std::back_inserter(task.notes));
  }
  return [=](const Config& resolved) { return rearranged_experts(resolved, site, origins); };
}

/// Returns a note for the user: "layer 3: 2 of 8 experts removed: 1, 6", or "layer 3 attention: …".
std::string pruned_text(const MixtureId& id, const std::vector<std::int64_t>& tokens,
                        const std::vector<std::int64_t>& kept) {
  std::vector<std::size_t> gone;
  for (std::size_t e = 0; e < tokens.size(); ++e) {
    if (!std::ranges::binary_search(kept, static_cast<std::int64_t>(e))) gone.push_back(e);
  }
  std::string text =
      fmt::format("layer {}: {} of {} removed", label_of(id), gone.size(), count_text(std::ssize(tokens), "expert"));
  if (!gone.empty()) text += ": " + ranges_text(gone);
  return text;
}

ExpertTokens logged_tokens(const Task& task) {
  const std::filesystem::path& routing = task.request.routing;
  const std::filesystem::path file = std::filesystem::is_directory(routing) ? routing / "routing.h5" : routing;
  const RoutingReader log(file);
  return tokens_of_experts(task.own, task.request.site, task.blocks, merged_records(log, {0, log.steps().size()}),
                           file.string());
}

SpecialPartsOf pruned(const Task& task) {
  const ConversionRequest& request = task.request;
  require_usage(request.routing.empty() == static_cast<bool>(request.count),
                "give either --routing, a run's routing.h5, or --data, tokens to count choices on");
  require_usage(request.threshold > 0 && request.threshold <= 1,
                "--threshold = {}: must be above 0 and at most 1; experts are kept if they have at least this share of "
                "the most used expert's tokens",
                request.threshold);
  const Site site = request.site;
  task.require_free(keys_of_experts(site));
  require_no_modules(task);
  require_changeable(task.own, site);
  const ExpertTokens tokens = request.count ? request.count() : logged_tokens(task);
  const Config& wanted = task.wanted.config;
  const ExpertOrigins origins =
      origins_after_pruning(task.own, site, tokens,
                            {.threshold = request.threshold,
                             .over_model = request.over_model,
                             .keep = site == Site::ffn ? wanted.moe.top_k : wanted.attention_experts.top_k});
  for (const auto& [layer, kept] : origins) task.notes.push_back(pruned_text({layer, site}, tokens.at(layer), kept));
  set_experts(task.wanted.config, site, origins);
  note_groups(task);
  return [=](const Config& resolved) { return rearranged_experts(resolved, site, origins); };
}

SpecialPartsOf modulized(const Task& task) {
  const std::int64_t experts = task.request.experts, width = task.own.model.ffn_hidden;
  require_dense(task);
  require_no_modules(task);
  task.require_free(std::array{"moe.experts", "moe.expert_hidden"});
  require_usage(experts > 0 && width % experts == 0,
                "--experts = {}: give the number of experts to split each FFN into, a divisor of its width {}", experts,
                width);
  require_no_ffn_bias(task);
  MoeConfig& moe = task.moe();
  moe.experts = experts;
  moe.expert_hidden = width / experts;
  if (!task.given("moe.router")) moe.router = RouterKind::random;
  if (!task.given("moe.gates")) moe.gates = Gates::ones;
  if (!task.given("moe.top_k")) moe.top_k = experts;
  require_usage(task.own.model.attention != AttentionKind::experts || moe.router == task.own.moe.router,
                "moe.router = {}: the attention experts use the same kind of router, which is {}: set moe.router = "
                "{}",
                name_of(moe.router), name_of(task.own.moe.router), name_of(task.own.moe.router));
  require_usage(task.request.coactivation.empty() || task.own.model.ffn == Activation::swiglu,
                "--by = coactivation supports only model.ffn = swiglu");
  return [&source = task.source, &own = task.own, request = task.request, experts](const Config& resolved) {
    FfnCut cut{.layers = {}, .output_scale = static_cast<float>(1 / resolved.moe.routed_scale)};
    const auto active =
        request.coactivation.empty()
            ? std::nullopt
            : std::optional<FfnInputs>(std::in_place, source, own, request.coactivation, request.sequences);
    for (const std::int64_t layer : sparse_layers(resolved)) {
      cut.layers[layer] = active ? group_units_by_coactivation(source, *active, layer, experts)
                                 : group_units_by_weights(source, own, layer, experts);
    }
    return experts_of_ffns(resolved, cut);
  };
}

SpecialPartsOf apply_transform(const Task& task) {
  constexpr std::array<SpecialPartsOf (*)(const Task&), transform_names.size()> all{same_tensors, merged, upcycled,
                                                                                    inserted,     pruned, modulized};
  const auto found =
      std::ranges::find(transform_names, task.request.transform, [](auto name) { return std::string(name); });
  require(found != transform_names.end(), "no such transform: {}", task.request.transform);
  return all[static_cast<std::size_t>(found - transform_names.begin())](task);
}

}  // namespace

std::span<const char* const> transforms() { return transform_names; }

Conversion convert(const ConversionRequest& request, const CheckpointReader& source, const Config& own,
                   LoadedConfig wanted) {
  require_none(wanted.mistakes);
  const std::string problem = source.problem(CheckpointReader::Check::sizes);
  require_input(problem.empty(), "{}", problem);
  Conversion conversion;
  if (const std::string& unsound = source.header().unsound; !unsound.empty()) {
    conversion.notes.push_back("the checkpoint is not sound: " + unsound);
  }
  Config from = own;
  from.mtp.depth = std::min(from.mtp.depth, wanted.config.mtp.depth);  // further modules are left out
  const Task task{.request = request,
                  .source = source,
                  .own = from,
                  .blocks = all_blocks(own),
                  .wanted = wanted,
                  .notes = conversion.notes};
  const SpecialPartsOf special_parts_of = apply_transform(task);
  const int ranks = static_cast<int>(fewest_ranks(wanted.config.parallel));
  require_none(problems(wanted.config, ranks));
  conversion.config = conversion.resolved = std::move(wanted.config);
  resolve(conversion.resolved, ranks);
  if (!conversion.resolved.optim.train_only.empty()) count_trained_values(conversion.resolved);
  require_adaptable(conversion.resolved);
  conversion.recipes = recipes_of(conversion.resolved, source, special_parts_of(conversion.resolved));
  return conversion;
}

}  // namespace lyceum
