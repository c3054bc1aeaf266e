#include "model/transformer.h"

#include <algorithm>
#include <tuple>

#include "autograd/embedding.h"
#include "autograd/linear.h"
#include "autograd/sum.h"
#include "core/copy.h"
#include "kernels/elementwise.h"
#include "kernels/rope.h"
#include "parallel/tensor/linear_cross_entropy.h"

namespace lyceum {

ParameterUnit& Transformer::add_unit(const std::string& name, ParameterUnit::Group group, std::int64_t layer) {
  return own(std::make_unique<ParameterUnit>(name, group, static_cast<int>(layer)));
}

ParameterUnit& Transformer::own(std::unique_ptr<ParameterUnit> unit) {
  own_units_.push_back(std::move(unit));
  units_.push_back(own_units_.back().get());
  return *units_.back();
}

Parameter& Transformer::add_table(const std::string& name, std::int64_t layer) {
  const ModelConfig& model = config_.model;
  return add_unit(name, ParameterUnit::Group::dense, layer)
      .add(sharded_parameter(name + "/weight", {model.vocab, model.hidden}, 0, words_, model.init_std));
}

Transformer::Transformer(const Config& config, const Stream& stream, const Mesh& mesh, DType type, bool train,
                         std::optional<Range> blocks, std::span<const ExpertLoad> measured)
    : config_(config),
      stream_(stream),
      mesh_(&mesh),
      type_(type),
      words_(part_of(config.model.vocab, mesh.tensor.rank(), mesh.tensor.size())) {
  const ModelConfig& model = config_.model;
  const Range own = blocks.value_or(Range{0, model.layers});
  require(own.first >= 0 && own.count > 0 && own.end() <= model.layers, "a stage of blocks {} to {} of {}", own.first,
          own.end(), model.layers);
  const bool first = own.first == 0, last = own.end() == model.layers;
  const std::string table = "model/embed_tokens";
  if (first) embedding_ = &add_table(table, 0);
  for (std::int64_t layer = own.first; layer < own.end(); ++layer) add_block(layer, measured);
  make_tallies();
  if (last) {
    const std::int64_t output = model.layers + 1;
    final_norm_ = &add_unit("model/norm", ParameterUnit::Group::replicated, output)
                       .add(whole_parameter("model/norm/weight", {model.hidden}, {}, false));
    head_ = !model.tie_embeddings ? &add_table("lm_head", output) : first ? embedding_ : &add_table(table, output);
  }
  if (model.tie_embeddings && first != last) shared_table_ = first ? units_.front() : units_.back();
  if (shared_table_ && last) shared_table_->set_twin();
  if (!train) {
    for (ParameterUnit* unit : units_) unit->allocate(stream, type, false);
  }

  rope_ = Tensor::empty(stream, accumulator_of(type), {config.batch.seq_len, model.head_dim}, MemoryKind::buffers);
  dispatch_accumulator(rope_.dtype(), [&]<class A>() {
    launch(stream, RopeTable<A>{.table = rope_.matrix<A>(), .base = model.rope_base});
  });
}

void Transformer::add_block(std::int64_t layer, std::span<const ExpertLoad> measured) {
  const ModelConfig& model = config_.model;
  const std::string prefix = "model/layers/" + std::to_string(layer);
  ParameterUnit& replicated = add_unit(prefix + "/replicated", ParameterUnit::Group::replicated, layer + 1);
  ParameterUnit& dense = add_unit(prefix + "/dense", ParameterUnit::Group::dense, layer + 1);
  const auto norm = [&](const char* name) {
    return &replicated.add(whole_parameter(prefix + "/" + name + "/weight", {model.hidden}, {}, false));
  };
  Block block{.attention_norm = norm("input_layernorm"),
              .attention = AttentionLayer(model, prefix + "/self_attn", mesh_->tensor, dense),
              .ffn_norm = norm("post_attention_layernorm"),
              .dense = nullptr,
              .moe = nullptr};
  const std::string ffn = prefix + "/mlp";
  if (!has_experts(config_, layer)) {
    const std::int64_t shared = config_.moe.shared_experts * config_.moe.expert_hidden;  // all experts always on
    const std::int64_t width = layer < model.first_dense_layers || shared == 0 ? model.ffn_hidden : shared;
    block.dense = std::make_unique<FeedForward>(model, ffn, width, mesh_->tensor, dense);
  } else {
    ParameterUnit& experts = add_unit(ffn + "/experts", ParameterUnit::Group::expert, layer + 1);
    auto untrained = std::make_unique<ParameterUnit>(ffn + "/untrained", ParameterUnit::Group::replicated,
                                                     static_cast<int>(layer) + 1, false);
    block.moe =
        std::make_unique<MoeLayer>(config_, ffn, layer, *mesh_, MoeLayer::Units{dense, replicated, experts, *untrained},
                                   expert_places(config_, layer, mesh_->expert.size(), measured));
    if (!untrained->parameters().empty()) own(std::move(untrained));
    routed_layers_.push_back(layer);
  }
  blocks_.push_back(std::move(block));
}

void Transformer::initialize(std::uint64_t seed) {
  for (ParameterUnit* unit : units_) unit->initialize(stream_, seed);
}

void Transformer::make_tallies() {
  const auto layers = std::ssize(routed_layers_);
  const std::int64_t top_k = config_.moe.top_k, experts = config_.moe.experts;
  counts_ = Tensor::zeros(stream_, DType::i64, {layers * top_k, experts}, MemoryKind::buffers);
  probability_ = Tensor::zeros(stream_, DType::f64, {layers * experts}, MemoryKind::buffers);
  std::int64_t place = 0;
  for (Block& block : blocks_) {
    if (!block.moe) continue;
    block.tally = {counts_.slice(place * top_k, top_k), probability_.slice(place * experts, experts)};
    ++place;
  }
}

std::vector<RoutingSums> Transformer::routing() const {
  const auto counts = values_of<std::int64_t>(stream_, counts_);
  const auto probability = values_of<double>(stream_, probability_);
  std::vector<RoutingSums> all;
  auto count = counts.begin();
  auto sum = probability.begin();
  for (const std::int64_t layer : routed_layers_) {
    RoutingSums sums = no_routing(config_, layer);
    for (std::int64_t& own : sums.counts) own = *count++;
    for (double& own : sums.probability) own = *sum++;
    all.push_back(std::move(sums));
  }
  return all;
}

void Transformer::clear_routing() {
  launch(stream_, Clear<std::int64_t>{.y = counts_.span<std::int64_t>()});
  launch(stream_, Clear<double>{.y = probability_.span<double>()});
}

void Transformer::update_routers(std::span<const AdamWNumbers> numbers) const {
  const auto learns = [](const Block& block) { return block.moe && block.moe->router().learns_from_counts(); };
  if (std::ranges::none_of(blocks_, learns)) return;
  const Tensor counts = Tensor::empty(stream_, DType::i64, counts_.shape(), MemoryKind::buffers);
  copy_on_device(stream_, counts.raw(), counts_.raw(), counts_.bytes());
  mesh_->data_tensor.all_reduce_async(counts).wait();
  std::int64_t place = 0;
  for (const Block& block : blocks_) {
    if (!block.moe) continue;
    block.moe->router().update(stream_, counts.slice(place * config_.moe.top_k, config_.moe.top_k), numbers);
    ++place;
  }
}

RmsNorm Transformer::norm(const TokenLayout& layout, Parameter* weight) const {
  return {weight, config_.model.norm_eps, layout.graded()};
}

std::vector<Variable> Transformer::run_block(Tape& tape, const Pass& pass, const Block& block, const Variable& x) {
  const TokenLayout& layout = pass.layout;
  const RmsNorm attention_norm = norm(layout, block.attention_norm), ffn_norm = norm(layout, block.ffn_norm);
  const Variable attention_in = tape.apply(attention_norm, x);
  const Variable attended = block.attention.forward(tape, layout, attention_in, rope_);
  tape.release(attention_in, attention_norm, x);
  const auto [middle, ffn_in] = tape.apply(SumNorm{ffn_norm}, x, attended);
  Variable y;
  MoeLayer::Losses losses;
  if (block.dense) {
    y = block.dense->forward(tape, layout, ffn_in);
  } else {
    std::tie(y, losses) = block.moe->forward(tape, pass, ffn_in, counting_ ? &block.tally : nullptr);
  }
  tape.release(ffn_in, ffn_norm, middle);
  return {tape.apply(Sum{}, middle, y), losses.expert, losses.device, losses.z};
}

Variable Transformer::embed(Tape& tape, const TokenLayout& layout, const Tensor& tokens) const {
  const Embedding embedding{.table = embedding_, .tokens = tokens, .first = words_.first, .vocab = config_.model.vocab};
  return layout.from_matrix(tape, tape.apply(embedding));
}

Variable Transformer::blocks(Tape& tape, const Pass& pass, Variable x, Losses& losses) {
  for (const Block& block : blocks_) {
    const auto run = [this, &block, pass](Tape& inner, const Variable& input) {
      return run_block(inner, pass, block, input);
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

Variable Transformer::head_input(Tape& tape, const TokenLayout& layout, const Variable& x) const {
  return layout.to_matrix(tape, tape.apply(norm(layout, final_norm_), x));
}

Variable Transformer::cross_entropy(Tape& tape, const TokenLayout& layout, const Variable& x,
                                    const Batch& batch) const {
  const LinearCrossEntropy loss{.weight = head_,
                                .targets = batch.targets,
                                .chunk = config_.model.loss_chunk,
                                .group = &mesh_->tensor,
                                .words = words_,
                                .vocab = config_.model.vocab,
                                .losses = batch.losses};
  return tape.apply(loss, head_input(tape, layout, x));
}

TokenLayout Transformer::layout_of(std::int64_t tokens, std::int64_t seq_len) const {
  return {mesh_->tensor, config_.parallel.sequence, tokens, seq_len};
}

Shape Transformer::boundary(std::int64_t tokens, std::int64_t seq_len) const {
  return {config_.parallel.sequence ? layout_of(tokens, seq_len).own().count : tokens, config_.model.hidden};
}

Transformer::StageResult Transformer::forward_stage(Tape& tape, const Batch& batch, const Variable& x) {
  require(batch.seq_len <= rope_.shape()[0], "sequences of {} tokens: this model was made for {}", batch.seq_len,
          rope_.shape()[0]);
  require(x.value.defined() != first_stage(), "a pipeline stage {}",
          first_stage() ? "begins with tokens and was given another stage's result"
                        : "in the middle of the model was given no other stage's result");
  const TokenLayout layout = layout_of(batch.tokens(), batch.seq_len);
  tape.release_results(config_.model.recompute == "selective");
  StageResult result;
  const Pass pass{.layout = layout, .tokens = batch.inputs, .first_token = batch.first_token, .step = batch.step};
  const Variable y = blocks(tape, pass, first_stage() ? embed(tape, layout, batch.inputs) : x, result.losses);
  if (last_stage()) {
    result.losses.cross_entropy = cross_entropy(tape, layout, y, batch);
  } else {
    result.y = y;
  }
  return result;
}

Transformer::Losses Transformer::forward(Tape& tape, const Batch& batch) {
  require(last_stage(), "losses of a pipeline stage that is not the last");
  return forward_stage(tape, batch, {}).losses;
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
  require_usage(first_stage() && last_stage(),
                "text is generated with all blocks on one rank: set parallel.pipeline = 1");
  require_usage(mesh_->tensor.size() == 1, "text is generated with all heads on one rank: set parallel.tensor = 1");
  require(count > 0 && caches.at(0).length + count <= rope_.shape()[0], "{} + {} tokens: the model was made for {}",
          caches.at(0).length, tokens.size(), rope_.shape()[0]);
  Tape tape(stream, Tape::Mode::inference);
  const Tensor inputs = Tensor::empty(stream, DType::i32, {count});
  copy_to_device(stream, inputs.span<std::int32_t>(), tokens);
  // Balance losses are a whole sequence's affair: a decoded piece counts as one.
  const Pass pass{.layout = TokenLayout(count, count), .tokens = inputs};
  const TokenLayout& layout = pass.layout;
  Variable x = embed(tape, layout, inputs);
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const Block& block = blocks_[b];
    const Variable normed = tape.apply(norm(layout, block.attention_norm), x);
    x = tape.apply(Sum{}, x, Variable{block.attention.decode(stream, normed.value, caches[b], rope_)});
    const Variable ffn_in = tape.apply(norm(layout, block.ffn_norm), x);
    const Variable y = block.dense ? block.dense->forward(tape, layout, ffn_in)
                                   : block.moe->forward(tape, pass, ffn_in, nullptr).first;
    x = tape.apply(Sum{}, x, y);
  }
  const Variable last{x.value.slice(count - 1, 1)};
  return tape.apply(Linear{head_}, head_input(tape, TokenLayout(1, 1), last)).value;
}

}  // namespace lyceum
