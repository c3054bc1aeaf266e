#include "model/transformer.h"

#include <algorithm>

#include "autograd/cross_entropy.h"
#include "autograd/embedding.h"
#include "autograd/linear.h"
#include "autograd/rms_norm.h"
#include "autograd/sum.h"
#include "kernels/rope.h"

namespace lyceum {

ParameterUnit& Transformer::add_unit(const std::string& name, ParameterUnit::Group group, std::int64_t layer) {
  return *units_.emplace_back(std::make_unique<ParameterUnit>(name, group, static_cast<int>(layer)));
}

Transformer::Transformer(const Config& config, const Stream& stream, const Mesh& mesh, DType type, bool train)
    : config_(config), mesh_(&mesh), type_(type) {
  const ModelConfig& model = config_.model;
  const Shape table{model.vocab, model.hidden};
  ParameterUnit& input = add_unit("model/embed_tokens", ParameterUnit::Group::dense, 0);
  embedding_ = &input.add(whole_parameter("model/embed_tokens/weight", table, model.init_std, true));
  for (std::int64_t layer = 0; layer < model.layers; ++layer) add_block(layer);
  ParameterUnit& output = add_unit("lm_head", ParameterUnit::Group::dense, model.layers + 1);
  final_norm_ = &output.add(whole_parameter("model/norm/weight", {model.hidden}, {}, false));
  head_ =
      model.tie_embeddings ? embedding_ : &output.add(whole_parameter("lm_head/weight", table, model.init_std, true));
  if (!train) {
    for (const auto& unit : units_) unit->allocate(stream, type, false);
  }

  rope_ = Tensor::empty(stream, accumulator_of(type), {config.batch.seq_len, model.head_dim}, MemoryKind::buffers);
  dispatch_accumulator(rope_.dtype(), [&]<class A>() {
    launch(stream, RopeTable<A>{.table = rope_.matrix<A>(), .base = model.rope_base});
  });
}

void Transformer::add_block(std::int64_t layer) {
  const ModelConfig& model = config_.model;
  const std::string prefix = "model/layers/" + std::to_string(layer);
  ParameterUnit& unit = add_unit(prefix, ParameterUnit::Group::dense, layer + 1);
  const auto norm = [&](const char* name) {
    return &unit.add(whole_parameter(prefix + "/" + name + "/weight", {model.hidden}, {}, false));
  };
  Block block{.attention_norm = norm("input_layernorm"),
              .attention = AttentionLayer(model, prefix + "/self_attn", unit),
              .ffn_norm = norm("post_attention_layernorm"),
              .dense = nullptr,
              .moe = nullptr};
  const std::string ffn = prefix + "/mlp";
  if (layer < model.first_dense_layers || config_.moe.experts == 0) {
    const std::int64_t shared = config_.moe.shared_experts * config_.moe.expert_hidden;  // all experts always on
    const std::int64_t width = layer < model.first_dense_layers || shared == 0 ? model.ffn_hidden : shared;
    block.dense = std::make_unique<FeedForward>(ffn, model.hidden, width, model.init_std, unit);
  } else {
    ParameterUnit& experts = add_unit(ffn + "/experts", ParameterUnit::Group::expert, layer + 1);
    block.moe = std::make_unique<MoeLayer>(config_, ffn, *mesh_, unit, experts);
    block.routing = routing_.size();
    routing_.push_back(
        {.layer = layer, .top_k = config_.moe.top_k, .experts = config_.moe.experts, .counts = {}, .probability = {}});
  }
  blocks_.push_back(std::move(block));
}

void Transformer::initialize(std::uint64_t seed) {
  for (const auto& unit : units_) unit->initialize(seed);
}

void Transformer::clear_routing() {
  for (RoutingSums& sums : routing_) {
    sums.counts.assign(static_cast<std::size_t>(sums.top_k * sums.experts), 0);
    sums.probability.assign(static_cast<std::size_t>(sums.experts), 0.0);
  }
}

std::vector<Variable> Transformer::run_block(Tape& tape, const Block& block, const Variable& x, std::int64_t seq_len) {
  const double eps = config_.model.norm_eps;
  const Variable attended =
      block.attention.forward(tape, tape.apply(RmsNorm{block.attention_norm, eps}, x), seq_len, rope_);
  const Variable middle = tape.apply(Sum{}, x, attended);
  const Variable normed = tape.apply(RmsNorm{block.ffn_norm, eps}, middle);
  if (block.dense) return {tape.apply(Sum{}, middle, block.dense->forward(tape, normed)), {}, {}, {}};
  const auto [y, losses] = block.moe->forward(tape, normed, seq_len, counting_ ? &routing_[block.routing] : nullptr);
  return {tape.apply(Sum{}, middle, y), losses.expert, losses.device, losses.z};
}

Variable Transformer::blocks(Tape& tape, const Tensor& inputs, std::int64_t seq_len, Losses& losses) {
  require(seq_len <= rope_.shape()[0], "sequences of {} tokens: this model was made for {}", seq_len, rope_.shape()[0]);
  Variable x = tape.apply(Embedding{embedding_, inputs});
  for (const Block& block : blocks_) {
    const auto run = [this, &block, seq_len](Tape& inner, const Variable& input) {
      return run_block(inner, block, input, seq_len);
    };
    const std::vector<Variable> results = config_.model.recompute == "full" ? tape.recompute(run, x) : run(tape, x);
    x = results[0];
    const std::array kinds{&losses.expert, &losses.device, &losses.z};
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      if (results[kind + 1].value.defined()) kinds[kind]->push_back(results[kind + 1]);
    }
  }
  return x;
}

Variable Transformer::head(Tape& tape, const Variable& x) const {
  return tape.apply(Linear{head_}, tape.apply(RmsNorm{final_norm_, config_.model.norm_eps}, x));
}

Transformer::Losses Transformer::forward(Tape& tape, const Batch& batch) {
  Losses losses;
  const Variable x = blocks(tape, batch.inputs, batch.seq_len, losses);
  losses.cross_entropy = tape.apply(CrossEntropy{batch.targets}, head(tape, x));
  return losses;
}

std::vector<KeyValueCache> Transformer::new_caches(const Stream& stream, std::int64_t capacity) const {
  std::vector<KeyValueCache> caches;
  for (const Block& block : blocks_) {
    const Shape shape{capacity, block.attention.key_width()};
    caches.push_back({.keys = Tensor::empty(stream, type_, shape, MemoryKind::buffers),
                      .values = Tensor::empty(stream, type_, shape, MemoryKind::buffers)});
  }
  return caches;
}

Tensor Transformer::decode(const Stream& stream, std::span<const std::int32_t> tokens,
                           std::vector<KeyValueCache>& caches) const {
  const auto count = static_cast<std::int64_t>(tokens.size());
  require(count > 0 && caches.at(0).length + count <= rope_.shape()[0], "{} + {} tokens: the model was made for {}",
          caches.at(0).length, tokens.size(), rope_.shape()[0]);
  Tape tape(stream, Tape::Mode::inference);
  const Tensor inputs = Tensor::empty(stream, DType::i32, {count});
  std::copy(tokens.begin(), tokens.end(), inputs.data<std::int32_t>());
  Variable x = tape.apply(Embedding{embedding_, inputs});
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const Block& block = blocks_[b];
    const Variable normed = tape.apply(RmsNorm{block.attention_norm, config_.model.norm_eps}, x);
    x = tape.apply(Sum{}, x, Variable{block.attention.decode(stream, normed.value, caches[b], rope_)});
    const Variable ffn_in = tape.apply(RmsNorm{block.ffn_norm, config_.model.norm_eps}, x);
    // Balance losses are a whole sequence's affair: a decoded piece counts as one.
    const Variable y =
        block.dense ? block.dense->forward(tape, ffn_in) : block.moe->forward(tape, ffn_in, count, nullptr).first;
    x = tape.apply(Sum{}, x, y);
  }
  return head(tape, Variable{x.value.slice(count - 1, 1)}).value;
}

std::vector<std::pair<std::int64_t, const Placement*>> Transformer::placements() const {
  std::vector<std::pair<std::int64_t, const Placement*>> all;
  for (const Block& block : blocks_) {
    if (block.moe) all.emplace_back(routing_[block.routing].layer, &block.moe->placement());
  }
  return all;
}

}  // namespace lyceum
