#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/range.h"
#include "io/routing/mixture_id.h"

namespace lyceum {

/// What a router of a resolved configuration chooses from. Everything that is reported of routing (tallies, logs,
/// loads, placement, losses, counts, plan) goes by these descriptions.
struct Mixture {
  enum class Kind : std::uint8_t {
    experts,  // weights of their own
    pieces,   // equal parts of hidden, which matrices have rows and columns for [MoHD]
  };
  MixtureId id;
  Kind kind = Kind::experts;
  RouterKind router = RouterKind::softmax;
  Gates gates = Gates::raw;
  std::int64_t k = 1;                  // that the router chooses for a token
  std::int64_t always_on = 0;          // that every token has besides: shared experts, or the first pieces
  std::int64_t group_limit = 0;        // of balance.device_groups, those that a token's choices lie in; 0: all
  double capacity_factor = 0;          // limits how many of a sequence's choices one takes in training; 0: no limit
  std::vector<std::int64_t> widths;    // of each choice: hidden width of an FFN's expert, queries of an attention's
  std::int64_t zeros = 0, copies = 0;  // the last choices, of width 0: that give 0, and behind them their input

  std::int64_t choices() const { return static_cast<std::int64_t>(widths.size()); }
  /// Of the choices, the first ones that every token has and none chooses: pieces that are always on.
  std::int64_t never_chosen() const { return kind == Kind::pieces ? always_on : 0; }
  /// Those of them that have weights: the first ones.
  std::int64_t weighted() const { return choices() - zeros - copies; }
  /// Whether the choices are shared out to the ranks of the expert group; else every rank has all of them.
  bool placed() const { return kind == Kind::experts && id.site == Site::ffn; }
};

/// Of a layer, in the order of forward; none where nothing routes.
std::vector<Mixture> mixtures_of(const Config& config, std::int64_t layer);
/// Of the whole model.
std::vector<Mixture> mixtures_of(const Config& config);
/// The mixture of that name. Throws a bad_input Error where the model has none.
Mixture mixture_of(const Config& config, const MixtureId& id);

/// What a pipeline stage holds of a model.
struct StageParts {
  bool input = true;  // the embedding
  Range blocks;
  bool output = true;  // final norm and head
};
/// Of the stage of these blocks: the first one has the input, the last one the output.
StageParts parts_of(const Config& config, const Range& blocks);
/// Whether a stage needs the tokens: input and output do, and routers that go by what a token is.
bool reads_tokens(const Config& config, const StageParts& stage);

/// The experts of a layer's attention; none where it has none.
std::optional<Mixture> attention_experts(const Config& config, std::int64_t layer);
/// The pieces of hidden that a half of a block uses; none where it uses all.
std::optional<Mixture> pieces_of(const Config& config, const MixtureId& id);
/// Rows of a block of the Monarch matrix behind that half; 0 for none.
std::int64_t fusion_width(const Config& config, const Mixture& pieces);
/// The fewest routed experts with weights of any layer's FFN; 0 where none has some.
std::int64_t fewest_experts(const Config& config);
/// The routed experts of a layer's FFN; none where it has none.
std::optional<Mixture> routed_experts(const Config& config, std::int64_t layer);
/// Whether the layer's FFN is made of experts, routed or shared.
bool is_sparse(const Config& config, std::int64_t layer);
/// Width of the FFN that every token of the layer passes: the dense one, or all shared experts together; 0 for none.
std::int64_t dense_width(const Config& config, std::int64_t layer);

}  // namespace lyceum
