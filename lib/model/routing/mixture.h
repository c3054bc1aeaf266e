#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/range.h"
#include "io/routing/mixture_id.h"

namespace lyceum {

/// Describes what one router of a resolved configuration chooses from. Tallies, logs, loads, placement, losses, counts
/// and the plan use these descriptions.
struct Mixture {
  enum class Kind : std::uint8_t {
    experts,         // each choice has its own weights
    sub_dimensions,  // equal parts of hidden [MoHD], for which matrices have rows and columns
  };
  MixtureId id;
  Kind kind = Kind::experts;
  RouterKind router = RouterKind::softmax;
  bool router_bias = false;  // the router adds a trained bias to its logits
  Gates gates = Gates::raw;
  double gate_scale = 1;  // factor of the gates
  std::int64_t k = 1;     // choices per token
  /// Choices that every token uses in addition: the shared experts, or the first sub-dimensions.
  std::int64_t always_on = 0;
  /// Number of the balance.device_groups groups from which one token may choose; 0: all.
  std::int64_t group_limit = 0;
  GroupScore group_score = GroupScore::top2;  // how a token chooses these groups
  /// Limit of a sequence's choices per expert, relative to the mean; 0: no limit.
  double capacity_factor = 0;
  /// [choices]: hidden width of an FFN expert, elements of an attention expert's queries, width of a sub-dimension.
  std::vector<std::int64_t> widths;
  /// Numbers of experts without weights, of width 0: `zeros` that return 0, followed by `copies` that return their
  /// input. They are the last choices.
  std::int64_t zeros = 0, copies = 0;

  std::int64_t choices() const { return static_cast<std::int64_t>(widths.size()); }
  /// Returns the number of choices that every token uses and the router cannot choose: the sub-dimensions that are
  /// always active. They are the first ones.
  std::int64_t never_chosen() const { return kind == Kind::sub_dimensions ? always_on : 0; }
  /// Returns the number of choices with weights, which are the first ones.
  std::int64_t weighted() const { return choices() - zeros - copies; }
  /// True if the choices are divided among the ranks of the expert group; otherwise every rank has all of them.
  bool placed() const { return kind == Kind::experts && id.site == Site::ffn; }
};

/// Returns the mixtures of one layer in forward order; empty if no router of the layer chooses. Layers are the blocks
/// of all_blocks().
std::vector<Mixture> mixtures_of(const Config& config, std::int64_t layer);
/// Returns the mixtures of all layers in forward order.
std::vector<Mixture> mixtures_of(const Config& config);
/// Returns the mixture with this id. Throws a bad_input Error if the model has none.
Mixture mixture_of(const Config& config, const MixtureId& id);

/// The parts of a model that a pipeline stage holds.
struct StageParts {
  bool input = true;  // the embedding
  Range blocks;
  bool output = true;  // final norm and head, and the modules of multi-token prediction
};
/// Returns the parts of the stage with these consecutive blocks. The stage with the first block also has the input, the
/// stage with the last block the output.
StageParts parts_of(const Config& config, const Range& blocks);
/// True if the output reads the embedding table, which the input then shares: as a tied head, or as the embedding of
/// the modules of multi-token prediction.
bool shares_table(const Config& config);
/// True if a stage reads the tokens of the batch: for its input or output, or for a router that chooses by token id.
bool reads_tokens(const Config& config, const StageParts& stage);

/// Returns the attention experts of a layer; nothing if it has none.
std::optional<Mixture> attention_experts(const Config& config, std::int64_t layer);
/// Returns the sub-dimensions of the half `id` of a block; nothing if the half uses all of hidden. With k = 0 all
/// active ones are shared: the router computes their factors but chooses nothing, so mixtures_of() does not list them.
std::optional<Mixture> sub_dimensions_of(const Config& config, const MixtureId& id);
/// Returns the number of rows of each square diagonal block in the two factors of the fusion, the Monarch matrix that
/// mixes the output of a half with sub-dimensions; 0 if there is no fusion.
std::int64_t fusion_width(const Config& config, const Mixture& mixture);
/// Returns the smallest number of routed experts with weights in any layer's FFN; 0 if no layer has routed experts.
std::int64_t fewest_experts(const Config& config);
/// Returns the routed experts of a layer's FFN; nothing if it has none.
std::optional<Mixture> routed_experts(const Config& config, std::int64_t layer);
/// True if the layer's FFN consists of experts, routed or shared.
bool is_sparse(const Config& config, std::int64_t layer);
/// Returns the width of the FFN that every token of the layer passes: the dense one, or all shared experts together; 0
/// without either.
std::int64_t dense_width(const Config& config, std::int64_t layer);

}  // namespace lyceum
