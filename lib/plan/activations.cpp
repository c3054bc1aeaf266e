#include "plan/activations.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/segments.h"
#include "model/balance_loss.h"
#include "model/expert_places.h"
#include "parallel/tensor/linear_cross_entropy.h"

namespace lyceum {

namespace {

/// A part of a block by each of the ways to recompute it.
struct PartNeed {
  double kept = 0, kept_for_weights = 0;  // see ActivationNeed
  double cheap = 0;                       // of kept: what is made again where model.recompute = selective
  double backward = 0;                    // the most on top of what is kept
  double replayed = 0;                    // the same where all weight gradients come last, as a recomputed block's
  double remade = 0;                      // the same on top of what is kept without `cheap`, while that is made again
};

/// The sizes that formulas below are made of. Counts of elements; `e` and `a` are bytes of an element and of an
/// accumulator.
struct Sizes {
  double tokens, run, rows, hidden, e, a;
  bool gathered;  // matrices get a copy of all rows
};

Sizes sizes_of(const Config& config, const Place& place) {
  const TokenShare share = token_share(config, place);
  return {.tokens = number(share.tokens),
          .run = number(share.run),
          .rows = number(share.rows),
          .hidden = number(config.model.hidden),
          .e = number(element_bytes(config)),
          .a = number(accumulator_bytes),
          .gathered = config.parallel.sequence && place.size(Axis::tensor) > 1};
}

/// Two norms, attention, and the rows before each; without the input of the second matrix, which is the FFN's.
PartNeed attention_activations(const Config& config, const Place& place, std::int64_t layer) {
  const Sizes s = sizes_of(config, place);
  const ModelConfig& model = config.model;
  double uses = 1;  // queries of a token
  for (const Mixture& mixture : mixtures_of(config, layer)) {
    if (mixture.id.site == Site::attention && mixture.kind == Mixture::Kind::experts) uses = number(mixture.k);
  }
  const double heads = uses * number(model.heads / place.size(Axis::tensor));
  const double queries = heads * number(model.head_dim);
  const double keys = number(model.kv_heads / place.size(Axis::tensor) * model.head_dim);
  const double norms = 2 * (s.rows * s.hidden * s.e + s.rows * s.a);
  const double inputs = s.tokens * s.hidden * s.e, out = s.tokens * queries * s.e;
  const double qkv = s.tokens * (queries + 2 * keys) * s.e;
  const double residual = s.rows * s.hidden * s.e, backward = residual + out + qkv;
  // Again: the norm's result with that of attention; then, where rows are gathered, these with their gradient.
  const double core = residual + out + backward, projections = 2 * inputs - s.tokens * heads * s.a;
  return {.kept = norms + inputs + qkv + out + s.tokens * heads * s.a,
          .kept_for_weights = 2 * norms + inputs + qkv + out + residual,
          .cheap = inputs + out,
          .backward = backward,
          .remade = s.gathered ? std::max(core, projections) : core};
}

constexpr double number_bytes = sizeof(std::int64_t);
/// Begins and rows of a SegmentTable, or offsets and widths of a SegmentLayout.
double segment_numbers(double experts) { return 2 * experts + 1; }
/// Bytes of what a bank keeps of its segments: their table, three layouts.
double bank_tables(double experts) { return number_bytes * 4 * segment_numbers(experts); }

/// A dense FFN of `width` on this rank; its input apart.
PartNeed ffn_activations(const Config& config, const Sizes& s, double width) {
  const double gates = config.model.ffn == "gelu" ? 1 : 2;
  // dy, dx; the activation and its gradient, the gradient of the gates
  const double backward = (2 * s.tokens * s.hidden + (gates + 2) * s.tokens * width) * s.e;
  return {.kept = gates * s.tokens * width * s.e + bank_tables(1),
          .kept_for_weights = (gates + 1) * s.tokens * width * s.e + s.tokens * s.hidden * s.e + bank_tables(1),
          .backward = backward,
          .replayed = backward,
          .remade = backward};
}

/// Rows of this rank's routed experts, as the bank sees them, with padding.
struct Routed {
  double rows = 0, inner = 0;           // inner: Σ rows · width
  double own_rows = 0;                  // of this rank alone, where others share the widths
  double arrived = 0, own_arrived = 0;  // both without padding
  double pairs = 0;                     // tokens of this rank times choices
};

/// Tokens that one routed expert gets in a micro-batch from the ranks of an expert group.
double arriving(const Config& config, const Mixture& mixture, const Place& place) {
  double tokens = 0;
  for (int e = 0; e < place.size(Axis::expert); ++e) {
    tokens += number(run_of(config, place.tensor_index_of_expert_peer(e)));
  }
  return tokens * number(mixture.k) / number(mixture.choices());
}

/// The same from all ranks that share the expert's width.
double arriving_at_all(const Config& config, const Mixture& mixture, const Place& place) {
  double all = 0;
  for (int sharer = 0; sharer < place.size(Axis::expert_tensor); ++sharer) {
    Place peer = place;
    peer.index.expert_tensor = sharer;
    all += arriving(config, mixture, peer);
  }
  return all;
}

/// What this rank holds of the widths of its routed experts.
std::vector<std::int64_t> own_widths(const Config& config, const Mixture& mixture, const Place& place) {
  const Placement placement = place_experts(config, mixture, place.size(Axis::expert), {});
  std::vector<std::int64_t> own;
  for (const std::int32_t e : placement.experts_of(place.index.expert)) {
    own.push_back(
        part_of(mixture.widths[static_cast<std::size_t>(e)], place.index.expert_tensor, place.size(Axis::expert_tensor))
            .count);
  }
  return own;
}

Routed routed_rows(const Config& config, const Mixture& mixture, const Place& place) {
  const auto padded = [](double rows) {
    const auto alignment = static_cast<double>(Segments::alignment);
    return std::ceil(rows / alignment) * alignment;
  };
  const double all = arriving_at_all(config, mixture, place), own = arriving(config, mixture, place);
  Routed routed;
  for (const std::int64_t width : own_widths(config, mixture, place)) {
    routed.rows += padded(all);
    routed.inner += padded(all) * number(width);
    routed.own_rows += padded(own);
    routed.arrived += all;
    routed.own_arrived += own;
  }
  routed.pairs = number(run_of(config, place.index.tensor)) * number(mixture.k);
  return routed;
}

/// What a router keeps of a run of tokens, and what gradients of its weights need when they are put off.
struct RouterNeed {
  double kept = 0, kept_for_weights = 0;
};

RouterNeed router_activations(const MoeConfig& moe, const Mixture& mixture, const Sizes& s) {
  const double experts = number(mixture.choices()), k = number(mixture.k), gates = s.run * k * s.a;
  if (mixture.router == RouterKind::hash) return {.kept = gates};
  // Logits with two norms a row, gates and choices; the logits' gradient.
  RouterNeed need{.kept = s.run * (experts + 2) * s.a + gates + s.run * k * sizeof(std::int32_t),
                  .kept_for_weights = s.run * experts * s.a};
  if (moe.group_limit > 0) need.kept += experts * sizeof(std::int32_t);
  if (mixture.router == RouterKind::noisy) {  // logits of the noise, their norm and the result
    const double logits = s.run * experts * s.a, norms = s.run * s.a;
    need.kept += 2 * logits + norms;
    need.kept_for_weights += 3 * logits + norms;
  }
  if (mixture.router == RouterKind::mlp) {
    const double inner = s.run * number(moe.router_hidden) * s.e;
    need.kept += inner;
    need.kept_for_weights += 2 * inner;
  }
  return need;
}

constexpr double loss_bytes = 5 * sizeof(double);  // of a layer's balance losses themselves

/// Router, routed experts, and what brings tokens to them; their input apart.
PartNeed routed_activations(const Config& config, const Mixture& mixture, const Place& place, const Sizes& s) {
  const Routed routed = routed_rows(config, mixture, place);
  const double gates = config.model.ffn == "gelu" ? 1 : 2;
  RouterNeed router = router_activations(config.moe, mixture, s);
  if (has_losses(config.balance)) {  // their slopes
    const double slopes = informs(config.balance) ? 3 : 2;
    router.kept += loss_bytes + slopes * number(config.batch.micro) * number(mixture.choices()) * sizeof(double);
  }
  const double row = s.hidden * s.e, outer = routed.rows * row, own = routed.own_rows * row, inner = routed.inner * s.e;
  const bool alone = place.size(Axis::expert) == 1, shared = place.size(Axis::expert_tensor) > 1;
  const double answers = (alone ? routed.own_rows : routed.pairs) * row;
  const bool direct = alone && !shared;  // the bank reads the tokens in place, and its rows are not kept
  const double copies = direct ? 0 : outer;
  const double bank = 2 * outer + (gates + 2) * inner;
  // Rows on their way: copies of what is sent, received and sorted.
  const double exchange = shared ? 2 * outer + 2 * own : alone ? 0 : routed.pairs * row + 2 * own;
  // Where rows go and come from, in both directions; and where segments begin.
  const double local = number(std::ssize(own_widths(config, mixture, place))), tables = bank_tables(local);
  double maps = routed.pairs + routed.own_rows + (alone ? 0 : routed.pairs + routed.own_arrived);
  if (shared) maps += routed.own_rows + routed.own_arrived + routed.rows + routed.arrived + 2 * segment_numbers(local);
  maps *= number_bytes;
  PartNeed need{
      .kept = router.kept + copies + gates * inner + answers + maps + tables,
      .kept_for_weights = router.kept_for_weights + copies + outer + (gates + 1) * inner + tables + (direct ? maps : 0),
      .cheap = copies,
      .backward = std::max(bank, exchange) - answers};
  need.replayed = std::max(need.backward, need.kept_for_weights - need.kept + std::max(exchange, outer));
  // Rows come again before the gradients of answers where others share the widths, and after them otherwise.
  const double again = shared ? exchange : routed.pairs * row + 2 * own;
  need.remade = direct ? need.backward : std::max(exchange, outer + std::max(again, bank)) - answers;
  return need;
}

/// The parts of a block, with what passes between them.
class BlockParts {
 public:
  BlockParts(const Config& config, const Place& place, std::int64_t layer)
      : input_(sizes_of(config, place).tokens * row(config)),
        residual_(row_activations(config, place)),
        attention_(attention_activations(config, place, layer)) {
    const Sizes s = sizes_of(config, place);
    const std::optional<Mixture> experts = routed_experts(config, layer);
    const double dense = number(dense_width(config, layer)) / static_cast<double>(place.size(Axis::tensor));
    if (dense > 0) ffn_ = ffn_activations(config, s, dense);
    if (experts) routed_ = routed_activations(config, *experts, place, s);
    if (experts && has_losses(config.balance)) losses_ = loss_bytes;
    inputs_ = experts ? residual_ + (s.gathered && dense > 0 ? input_ : 0) : input_;
  }

  ActivationNeed keeping_all() const {
    const double halves = std::max(ffn().backward, routed_ ? after_ffn() + routed_->backward : 0);
    return {.kept = kept(),
            .kept_for_weights = kept_for_weights(),
            .backward = residual_ + std::max(halves, attention_.backward - ffn_kept())};
  }

  ActivationNeed selective() const {
    const double halves =
        std::max(ffn_ ? inputs_ + ffn_->backward : 0, routed_ ? residual_ + after_ffn() + routed_->remade : 0);
    const double cheap = attention_.cheap + inputs_ + routed().cheap;
    return {.kept = kept() - cheap,
            .kept_for_weights = kept_for_weights(),
            .backward = residual_ + std::max(halves, attention_.remade - (ffn_kept() - inputs_ - routed().cheap))};
  }

  ActivationNeed keeping_input() const {
    const double with_ffn = ffn_ ? input_ + ffn_->kept_for_weights - ffn_->kept : 0;
    const double late = ffn().kept_for_weights + routed().kept_for_weights - ffn().kept - routed().kept;
    const double most =
        std::max({ffn().replayed, routed_ ? with_ffn + routed_->replayed : 0, late + attention_.backward});
    return {.kept = residual_ + losses_, .kept_for_weights = kept_for_weights(), .backward = kept() + most};
  }

 private:
  static double row(const Config& config) { return number(config.model.hidden) * number(element_bytes(config)); }
  PartNeed ffn() const { return ffn_.value_or(PartNeed{}); }
  PartNeed routed() const { return routed_.value_or(PartNeed{}); }
  double ffn_kept() const { return inputs_ + ffn().kept + routed().kept; }
  double kept() const { return attention_.kept + ffn_kept(); }
  double kept_for_weights() const {
    return attention_.kept_for_weights + inputs_ + ffn().kept_for_weights + routed().kept_for_weights;
  }
  /// The shared experts' backward comes first, then the routed ones', with the gradient of the rows at hand.
  double after_ffn() const { return ffn_ ? input_ - ffn_->kept : 0; }

  double input_, residual_;  // rows as matrices see them, and between them
  double losses_ = 0;
  double inputs_ = 0;  // what the FFN and the router read
  PartNeed attention_;
  std::optional<PartNeed> ffn_, routed_;
};

}  // namespace

ActivationNeed block_activations(const Config& config, const Place& place, std::int64_t layer) {
  const BlockParts parts(config, place, layer);
  if (config.model.recompute == "full") return parts.keeping_input();
  return config.model.recompute == "selective" ? parts.selective() : parts.keeping_all();
}

ActivationNeed head_activations(const Config& config, const Place& place) {
  const Sizes s = sizes_of(config, place);
  const double words = number(part_of(config.model.vocab, place.index.tensor, place.size(Axis::tensor)).count);
  const double row = s.rows * s.hidden * s.e, norm = row + s.rows * s.a, input = s.tokens * s.hidden * s.e;
  const double sums = s.tokens * s.a, logits = s.tokens * words * s.e;
  const int ranks = place.size(Axis::tensor);
  // Losses of tokens, and three statistics of each: those of this rank while it makes logits, then of all.
  const double making = ranks == 1 ? sums : 3 * sums, joining = ranks == 1 ? 0 : (1 + 3 * (1 + ranks)) * sums;
  const std::int64_t chunk = config.model.loss_chunk;
  if (LinearCrossEntropy::keeps_logits(chunk, token_share(config, place).tokens)) {
    return {.forward = std::max(making, joining),
            .kept = norm + input + sums + logits,
            .kept_for_weights = norm + row + input + logits,
            .backward = input};
  }
  const double some = number(chunk) * words * s.e;
  return {.forward = std::max(some + making, joining),
          .kept = norm + input + sums,
          .kept_for_weights = norm + row,
          .backward = input + some};
}

double routed_share(const Config& config, const Mixture& mixture, const Place& place) {
  double all = 0, own = 0;
  for (const std::int64_t width : mixture.widths) all += number(width);
  for (const std::int64_t width : own_widths(config, mixture, place)) own += number(width);
  const double tokens = number(config.batch.seq_len * mixture.k) / number(mixture.choices());
  return arriving_at_all(config, mixture, place) * own / (tokens * all);
}

double row_activations(const Config& config, const Place& place) {
  const Sizes s = sizes_of(config, place);
  return s.rows * s.hidden * s.e;
}

double token_bytes(const Config& config) {
  return 2 * number(config.batch.micro * config.batch.seq_len) * sizeof(std::int32_t);
}

}  // namespace lyceum
