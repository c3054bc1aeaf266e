#include "step_work.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "core/profile.h"
#include "model/counts.h"
#include "model/model_tensors.h"
#include "model/routing/expert_placements.h"
#include "model/routing/mixture.h"
#include "optim/matrix_slices.h"
#include "optim/weight_rule.h"
#include "parallel/expert/expert_route.h"

namespace lyceum {

namespace {

constexpr std::string_view communication = "communication", activation = "activation", norms = "norms, RoPE, sums",
                           loss = "embedding, loss", permutation = "permute, combine",
                           orthogonalization = "orthogonalize";

/// Operations as profiles name them, and the phase that each belongs to.
constexpr auto phase_of_operation = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"ExpertBank", "experts"},
    {"GatedBank", "experts"},
    {"Linear", "projections, head"},
    {"ReadSubDimensions", "sub-dimensions"},
    {"WriteSubDimensions", "sub-dimensions"},
    {"Monarch", "fusion"},
    {"FactorsOfSubDimensions", "router, balance"},
    {"LoadOfSubDimensions", "router, balance"},
    {"RotaryAttention", "attention"},
    {"LatentAttention", "attention"},
    {"StickBreakingAttention", "attention"},
    {"PreciseLinear", "router, balance"},
    {"Route", "router, balance"},
    {"BalanceLoss", "router, balance"},
    {"IdentityAllReduce", communication},
    {"AllReduceIdentity", communication},
    {"AllGatherReduceScatter", communication},
    {"ReduceScatterAllGather", communication},
    {"SliceAllGather", communication},
    {"AllGatherSlice", communication},
    {"SendTokens", permutation},
    {"TakeTokens", permutation},
    {"SendTokensAgain", permutation},
    {"SumAnswers", permutation},
    {"Combine", permutation},
    {"SortByExpert", permutation},
    {"PlaceInSegments", permutation},
    {"ComposeIndices", permutation},
    {"MapChoices", permutation},
    {"RmsNorm", norms},
    {"SplitLatent", norms},
    {"SumNorm", norms},
    {"Sum", norms},
    {"Embedding", loss},
    {"LinearCrossEntropy", "projections, head"},
    {"load batch", loss},
    {"optimizer", "optimizer"},
});

/// Returns the phase of a profile entry. `path` are its scopes from the outermost inwards, "Operation
/// direction/Kernel".
std::string_view phase_of(std::string_view path) {
  for (const std::string_view waiting : {"gradient reduction", "all-to-all", "pipeline wait"}) {
    if (path.find(waiting) != path.npos) return communication;
  }
  if (path.find("orthogonalize") != path.npos) return orthogonalization;
  if (path.find("/Activation") != path.npos) return activation;  // none if the products' kernels include the activation
  if (path.find("/CrossEntropy") != path.npos) return loss;
  for (const std::string_view copying :
       {"/CombineRows", "/GatherRows", "/AddPairs", "/PlaceSubDimensions", "/SubDimensionRows"}) {
    if (path.find(copying) != path.npos) return permutation;
  }
  if (path.find("/Rope") != path.npos) return norms;
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view scope = rest.substr(0, rest.find('/'));
    for (const auto& [operation, phase] : phase_of_operation) {
      if (scope == operation || (scope.starts_with(operation) && scope[operation.size()] == ' ')) return phase;
    }
    rest.remove_prefix(std::min(rest.size(), scope.size() + 1));
  }
  return "other";
}

/// Sizes as doubles, for the whole step over all ranks.
struct Sizes {
  ModelCounts counts;
  double tokens, sequence, hidden, vocab, layers, top_k;
  double queries, keys, values, results;  // width of all heads, per layer
  double sparse_layers = 0;               // layers with a router
  double expert_rows = 0;                 // rows of FFNs and experts per token, over all layers
  double passes;                          // micro-batches: each pass reads the weights again
  double element;                         // bytes of a weight or an activation
  double inputs;                          // columns of an FFN's first product per column of its width
  double dispatched = 0;        // rows per token that are written and read when it is sent to ranks, over all layers
  bool cut_attention, cut_ffn;  // attention and FFN use sub-dimensions
  bool tied;                    // the embedding table is also the weight of the head

  explicit Sizes(const Config& config) : counts(count_model(config)) {
    const ModelConfig& model = config.model;
    tokens = static_cast<double>(config.batch.global * config.batch.seq_len);
    sequence = static_cast<double>(config.batch.seq_len);
    hidden = static_cast<double>(model.hidden);
    vocab = static_cast<double>(model.vocab);
    layers = static_cast<double>(model.layers);
    top_k = static_cast<double>(config.moe.top_k);
    queries = static_cast<double>(model.heads * model.head_dim);
    keys = static_cast<double>(model.kv_heads * model.head_dim);
    const bool latent = model.attention == AttentionKind::latent;
    const std::int64_t value_dim = latent ? model.latent.value_dim : model.head_dim;
    values = static_cast<double>(model.kv_heads * value_dim);
    results = static_cast<double>(model.heads * value_dim);
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
      const std::optional<Mixture> mixture = routed_experts(config, layer);
      const bool routed = mixture.has_value();
      sparse_layers += routed;
      if (const int ranks = config.parallel.expert; routed && ranks > 1) {
        const ExpertPlacements places = expert_placements(config, *mixture, ranks, {});
        const ChoiceNumbers numbers{mixture->k, mixture->choices(), mixture->group_limit, &places.devices};
        dispatched += 1;
        for (int rank = 0; rank < ranks; ++rank) dispatched += share_of_tokens(places.ranks.experts_of(rank), numbers);
      }
      expert_rows += (routed ? top_k : 0) + (dense_width(config, layer) > 0);
    }
    passes =
        static_cast<double>(config.batch.global) / static_cast<double>(std::max<std::int64_t>(1, config.batch.micro));
    element = config.run.precision == Precision::bf16 ? 2 : 4;
    inputs = static_cast<double>(inputs_of(model.ffn));
    cut_attention = config.sub_dimensions.attention > 0;
    cut_ffn = config.sub_dimensions.ffn > 0;
    tied = model.tie_embeddings;
  }

  /// Returns the sum of the widths of the experts and FFNs that a token passes through, over all layers.
  double widths() const {
    const BlockCounts& blocks = counts.blocks;
    return static_cast<double>((blocks.routed + blocks.shared + blocks.ffn).activated) / ((inputs + 1) * hidden);
  }

  /// Returns the work of matrices with `total` parameters, of which a token uses `activated`: forward and both
  /// gradients. Their inputs and outputs have `width` elements per token. Gradients are added up in f32: read and
  /// written in each pass, except that the first one does not read them, or with `cleared`, that they are cleared
  /// before.
  Work matrices(double total, double activated, double width, bool cleared = false) const {
    const double gradients = 8 * passes + (cleared ? 4 : -4);
    return {6 * activated * tokens, total * (2 * element * passes + gradients) + 3 * element * tokens * width};
  }
};

Work experts(const Sizes& s) {
  if (s.cut_ffn) return {};
  const BlockCounts& blocks = s.counts.blocks;
  const Count all = blocks.routed + blocks.shared + blocks.ffn;
  return s.matrices(static_cast<double>(all.total), static_cast<double>(all.activated),
                    2 * s.hidden * s.expert_rows + (s.inputs + 1) * s.widths());
}

Work projections(const Sizes& s) {
  const double parameters =
      (s.cut_attention ? 0 : static_cast<double>(s.counts.blocks.attention.total)) + s.vocab * s.hidden;
  const double widths = (s.cut_attention ? 0 : s.layers * (2 * s.hidden + s.queries + s.keys + s.values + s.results)) +
                        s.hidden + s.vocab;
  return s.matrices(parameters, parameters, widths);
}

Work sub_dimensions(const Sizes& s) {
  Count all;
  double widths = 0;
  if (s.cut_attention) {
    all += s.counts.blocks.attention;
    widths += s.layers * (2 * s.hidden + s.queries + s.keys + s.values + s.results);
  }
  if (s.cut_ffn) {
    all += s.counts.blocks.ffn;
    widths += s.layers * 2 * s.hidden + (s.inputs + 1) * s.widths();
  }
  return s.matrices(static_cast<double>(all.total), static_cast<double>(all.activated), widths, true);
}

Work attention(const Sizes& s) {
  return {3 * s.tokens * s.sequence * (s.queries + s.results) * s.layers,
          3 * s.element * s.tokens * s.layers * (s.queries + s.keys + s.values + s.results)};
}

Work router(const Sizes& s) {
  const double routers = static_cast<double>(s.counts.blocks.routers.total);
  const double choices = s.sparse_layers > 0 ? routers / (s.hidden * s.sparse_layers) : 0;
  // The input rows are read twice and their gradient is written. Logits, in f32, are written, read in forward and in
  // backward, and their gradient is written and read for both matrix products.
  return {6 * routers * s.tokens, s.tokens * s.sparse_layers * (3 * s.element * s.hidden + 6 * 4 * choices)};
}

/// Products read the tokens and their gradients in place. Forward sums the k expert outputs of a token, backward the
/// gradients of its k copies. A token that is sent to other ranks travels four times: there and back, forward and
/// backward.
Work permute(const Sizes& s) {
  const double combine = 2 * (s.top_k + 1);
  return {0, s.element * s.tokens * s.hidden * (s.sparse_layers * combine + 4 * s.dispatched)};
}

/// Forward moves n + 1 columns and backward 2n + 1, for n input columns per output column; dy is counted with the
/// product that writes it.
Work activation_work(const Sizes& s) { return {0, (3 * s.inputs + 2) * s.element * s.tokens * s.widths()}; }

Work norms_work(const Sizes& s) {
  const double rows =
      5 * (2 * s.layers + 1) + 3 * (4 * s.layers + s.sparse_layers);  // norms; sums of the residual stream
  return {0, s.element * s.tokens * (rows * s.hidden + 4 * s.layers * (s.queries + s.keys))};
}

Work embedding_and_loss(const Sizes& s) {
  const double cleared = s.tied ? 0 : 4 * s.vocab * s.hidden;  // the gradient of the table; the head writes a tied one
  return {0, s.element * s.tokens * (3 * s.hidden + 3 * s.vocab) + cleared};
}

/// Products of Muon. Their operands are counted by no bytes: there are many products of each.
Work orthogonalize(const Config& config) {
  const RuleAssignment rules(config.optim);
  Work work;
  for (const ModelTensor& tensor : model_tensors(config)) {
    if (rules.rule_of(tensor.name, tensor.shape) != WeightRule::muon || tensor.buffer) continue;
    work.flops += newton_schulz_flops(tensor.shape[0], tensor.shape[1]);
  }
  return work;
}

Work optimizer(const Sizes& s) {  // f32: weights, two moments, gradients read twice; also bf16 weights
  return {0, static_cast<double>(s.counts.parameters) * (24 + 8 + (s.element == 2 ? 2 : 0))};
}

}  // namespace

std::vector<Phase> phases_of_step(const Config& config, int ranks) {
  const Sizes sizes(config);
  std::vector<Phase> phases{{"experts", experts(sizes)},
                            {"projections, head", projections(sizes)},
                            {"sub-dimensions", sub_dimensions(sizes)},
                            {"fusion", {}},
                            {"attention", attention(sizes)},
                            {"router, balance", router(sizes)},
                            {std::string(permutation), permute(sizes)},
                            {std::string(activation), activation_work(sizes)},
                            {std::string(norms), norms_work(sizes)},
                            {"embedding, loss", embedding_and_loss(sizes)},
                            {"optimizer", optimizer(sizes)},
                            {std::string(orthogonalization), orthogonalize(config)},
                            {std::string(communication), {}},
                            {"other", {}}};
  for (Phase& phase : phases) {
    phase.work.flops /= ranks;
    phase.work.bytes /= ranks;
  }
  return phases;
}

void add_times(std::vector<Phase>& phases, const std::map<std::string, Profile::Entry>& entries, int steps,
               double seconds) {
  double missing = seconds;
  for (const auto& [path, entry] : entries) {
    const auto phase =
        std::find_if(phases.begin(), phases.end(), [name = phase_of(path)](const Phase& p) { return p.name == name; });
    phase->seconds += entry.seconds / steps;
    missing -= entry.seconds / steps;
  }
  phases.push_back({"between operations", {}, missing});
}

}  // namespace lyceum
