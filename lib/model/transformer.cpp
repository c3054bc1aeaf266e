#include "model/transformer.h"

#include <utility>

#include "autograd/embedding.h"
#include "autograd/linear.h"
#include "autograd/sum.h"
#include "core/copy.h"
#include "kernels/elementwise.h"
#include "kernels/measures.h"
#include "kernels/rope.h"
#include "kernels/sum_columns.h"
#include "model/adapters.h"
#include "model/dropout.h"
#include "model/routing/router.h"
#include "model/sublayer_spec.h"
#include "model/tensor_pattern.h"
#include "parallel/tensor/linear_cross_entropy.h"

namespace lyceum {

ParameterUnit& Transformer::add_unit(const std::string& name, ParameterUnit::Group group, std::int64_t layer) {
  return keep_unit(std::make_unique<ParameterUnit>(name, group, static_cast<int>(layer)));
}

ParameterUnit& Transformer::keep_unit(std::unique_ptr<ParameterUnit> unit) {
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
                         std::optional<StageParts> parts, std::span<const ExpertLoad> measured)
    : config_(config),
      stream_(stream),
      mesh_(&mesh),
      type_(type),
      words_(part_of(config.model.vocab, mesh.tensor.rank(), mesh.tensor.size())),
      trains_(train) {
  const ModelConfig& model = config_.model;
  const StageParts own = parts.value_or(parts_of(config, {0, model.layers}));
  const auto& [first, range, last] = own;
  require(range.first >= 0 && range.count >= 0 && range.end() <= model.layers && (first || range.count > 0 || last),
          "a stage cannot have blocks {} to {} of {}", range.first, range.end(), model.layers);
  first_ = first;
  reads_tokens_ = lyceum::reads_tokens(config_, own);
  const std::string table = "model/embed_tokens";
  if (first) embedding_ = &add_table(table, 0);
  if (first && learns_rates(model.dropout)) {
    const SublayerTensor rate = embedding_rate(model);
    embedding_rate_ = &add_unit("model/embed_dropout", ParameterUnit::Group::replicated, 0)
                           .add(whole_parameter(rate.name, rate.shape, rate.initial, rate.decays()));
  }
  for (std::int64_t layer = range.first; layer < range.end(); ++layer) {
    blocks_.push_back(make_block(layer, add_block_units(layer, layer + 1), measured));
  }
  if (last) {
    final_norm_ = &add_unit("model/norm", ParameterUnit::Group::replicated, output_layer())
                       .add(whole_parameter("model/norm/weight", {model.hidden}, {}, false));
    if (!first && shares_table(config_)) embedding_ = &add_table(table, output_layer());
    head_ = model.tie_embeddings ? embedding_ : &add_table("lm_head", output_layer());
    add_modules(measured);
  }
  make_tallies();
  if (train) freeze();
  if (shares_table(config_) && first != last) shared_table_ = embedding_->unit;
  if (shared_table_ && last) shared_table_->set_twin();
  if (!train) {
    for (ParameterUnit* unit : units_) unit->allocate(stream, type, false);
  }

  make_positions();
}

void Transformer::set_stage(const Config& config) {
  config_ = config;
  make_positions();
  const auto set_stage_of = [&](const Block& block) {
    for (Sublayer* sublayer : {block.attention.get(), block.ffn.get()}) sublayer->set_stage(config.model);
  };
  for (const Block& block : blocks_) set_stage_of(block);
  for (const Module& module : modules_) set_stage_of(module.block);
}

void Transformer::make_positions() {
  const ModelConfig& model = config_.model;
  rope_ = {};
  const Shape table = position_table_shape(config_);
  if (table.size() == 0) return;
  rope_ = Tensor::empty(stream_, accumulator_of(type_), table, MemoryKind::buffers);
  dispatch_accumulator(rope_.dtype(), [&]<class A>() {
    const std::int64_t dim = rotary_dim(model);
    launch(stream_,
           RopeTable<A>{
               .table = rope_.matrix<A>(), .base = model.rope_base, .scaling = rope_scaling(model, dim), .dim = dim});
  });
}

Transformer::BlockUnits Transformer::add_block_units(std::int64_t layer, std::int64_t unit_layer) {
  const std::string prefix = block_prefix(config_.model, layer);
  return {add_unit(prefix + "/replicated", ParameterUnit::Group::replicated, unit_layer),
          add_unit(prefix + "/dense", ParameterUnit::Group::dense, unit_layer)};
}

Transformer::Block Transformer::make_block(std::int64_t layer, const BlockUnits& units,
                                           std::span<const ExpertLoad> measured) {
  const int unit_layer = units.dense.layer();
  const auto add = [&](const SublayerTensor& of) {
    return &units.replicated.add(
        whole_parameter(block_prefix(config_.model, layer) + "/" + of.name, of.shape, of.initial, of.decays()));
  };
  const auto make = [&](const SublayerSpec& spec) {
    ParameterUnit* const experts = spec.has(TensorUnit::experts)
                                       ? &add_unit(spec.prefix() + "/experts", ParameterUnit::Group::expert, unit_layer)
                                       : nullptr;
    auto untrained = std::make_unique<ParameterUnit>(spec.prefix() + "/untrained", ParameterUnit::Group::replicated,
                                                     unit_layer, ParameterUnit::Role::buffer);
    auto made = spec.make(config_, spec,
                          {.mesh = *mesh_,
                           .units = {units.dense, units.replicated, *untrained, experts},
                           .measured = measured,
                           .stream = stream_,
                           .type = type_,
                           .train = trains_});
    if (!untrained->parameters().empty()) keep_unit(std::move(untrained));
    return made;
  };
  const BlockNorms norms = block_norms(config_.model);
  Block block{.layer = layer,
              .attention_norm = add(norms.attention),
              .attention = nullptr,
              .ffn_norm = add(norms.ffn),
              .ffn = nullptr};
  if (learns_rates(config_.model.dropout)) {
    const BlockRates rates = block_rates(config_.model);
    block.attention_rate = add(rates.attention);
    block.ffn_rate = add(rates.ffn);
  }
  block.attention = make(attention_spec(config_, layer));
  block.ffn = make(ffn_spec(config_, layer));
  return block;
}

void Transformer::freeze() {
  if (config_.optim.lora_rank > 0) return adapt();
  if (config_.optim.train_only.empty()) return;
  const std::vector<TensorPattern> patterns = tensor_patterns(config_.optim.train_only);
  for (ParameterUnit* unit : std::exchange(units_, {})) {
    auto frozen = std::make_unique<ParameterUnit>(unit->name() + "/frozen", unit->group(), unit->layer(),
                                                  ParameterUnit::Role::frozen);
    if (unit->trained()) {
      // The decision uses whole tensors, not this rank's slices: either every rank with a slice of a tensor has moments
      // of it, or none has.
      unit->move_to(*frozen, [&](const Parameter& parameter) { return !names_any(parameter, patterns); });
      for (const auto& parameter : unit->parameters()) {
        parameter->frozen = unnamed_elements(*parameter, patterns);
      }
    }
    if (!unit->parameters().empty()) units_.push_back(unit);
    if (!frozen->parameters().empty()) keep_unit(std::move(frozen));
  }
}

void Transformer::adapt() {
  const Adapters adapters(config_.optim, *mesh_);
  for (ParameterUnit* unit : std::exchange(units_, {})) {
    if (!unit->trained()) {
      units_.push_back(unit);
      continue;
    }
    Adapters::Units divided = adapters.divide(*unit);
    if (!divided.frozen->parameters().empty()) keep_unit(std::move(divided.frozen));
    if (!divided.adapted->parameters().empty()) keep_unit(std::move(divided.adapted));
    for (auto& factors : divided.factors) keep_unit(std::move(factors));
  }
}

void Transformer::initialize(std::uint64_t seed) {
  for (ParameterUnit* unit : units_) unit->initialize(stream_, seed);
}

void Transformer::make_tallies() {
  std::int64_t counts = 0, sums = 0, dropped = 0;
  const auto add_routers_of = [&](const Block& block) {
    for (Sublayer* sublayer : {block.attention.get(), block.ffn.get()}) {
      if (!sublayer->mixture()) continue;
      routed_.push_back(sublayer);
      mixtures_.push_back(*sublayer->mixture());
      counts += mixtures_.back().k * mixtures_.back().choices();
      sums += mixtures_.back().choices() + 1;
      dropped += std::ssize(no_routing(mixtures_.back()).dropped);
    }
  };
  for (const Block& block : blocks_) add_routers_of(block);
  for (const Module& module : modules_) add_routers_of(module.block);
  counts_ = Tensor::zeros(stream_, DType::i64, {counts}, MemoryKind::buffers);
  probability_ = Tensor::zeros(stream_, DType::f64, {sums}, MemoryKind::buffers);
  if (dropped > 0) dropped_ = Tensor::zeros(stream_, DType::i64, {dropped}, MemoryKind::buffers);
  counts = sums = dropped = 0;
  for (Sublayer* router : routed_) {
    const std::int64_t k = router->mixture()->k, own = router->mixture()->choices();
    RoutingTally tally{counts_.view(counts, {k, own}), probability_.slice(sums, own),
                       probability_.slice(sums + own, 1)};
    if (router->mixture()->capacity_factor > 0) {
      tally.dropped = dropped_.view(dropped, {k, own});
      dropped += k * own;
    }
    router->set_tally(tally);
    counts += k * own;
    sums += own + 1;
  }
}

std::vector<RoutingSums> Transformer::routing() const {
  const auto counts = values_of<std::int64_t>(stream_, counts_);
  const auto probability = values_of<double>(stream_, probability_);
  const auto dropped = dropped_.defined() ? values_of<std::int64_t>(stream_, dropped_) : std::vector<std::int64_t>();
  std::vector<RoutingSums> all;
  auto count = counts.begin(), drop = dropped.begin();
  auto sum = probability.begin();
  for (const Mixture& mixture : mixtures_) {
    RoutingSums sums = no_routing(mixture);
    for (std::int64_t& own : sums.counts) own = *count++;
    for (double& own : sums.probability) own = *sum++;
    sums.entropy = *sum++;
    for (std::int64_t& own : sums.dropped) own = *drop++;
    all.push_back(std::move(sums));
  }
  return all;
}

std::vector<PlacedExperts*> Transformer::placed_experts() const {
  std::vector<PlacedExperts*> all;
  for (Sublayer* const sublayer : routed_) {
    if (PlacedExperts* const experts = sublayer->placed_experts()) all.push_back(experts);
  }
  return all;
}

void Transformer::clear_routing() {
  launch(stream_, Clear<std::int64_t>{.y = counts_.span<std::int64_t>()});
  launch(stream_, Clear<double>{.y = probability_.span<double>()});
  if (dropped_.defined()) launch(stream_, Clear<std::int64_t>{.y = dropped_.span<std::int64_t>()});
}

void Transformer::update_routers(std::span<const StepVerdict> verdict) const {
  if (std::ranges::none_of(routed_, [](const Sublayer* each) { return each->router()->learns_from_counts(); })) return;
  std::int64_t choices = 0;
  for (const Mixture& mixture : mixtures_) choices += mixture.choices();
  const Tensor loads = Tensor::empty(stream_, DType::i64, {choices}, MemoryKind::buffers);
  std::int64_t count = 0, load = 0;
  for (const Mixture& mixture : mixtures_) {
    launch(stream_,
           SumCounts{.counts = counts_.view(count, {mixture.k, mixture.choices()}).matrix<const std::int64_t>(),
                     .sums = loads.slice(load, mixture.choices()).span<std::int64_t>()});
    count += mixture.k * mixture.choices();
    load += mixture.choices();
  }
  mesh_->data_tensor.all_reduce_async(loads).wait();
  load = 0;
  for (const Sublayer* sublayer : routed_) {
    const std::int64_t own = sublayer->mixture()->choices();
    sublayer->router()->update(stream_, loads.view(load, {1, own}), verdict);
    load += own;
  }
}

RmsNorm Transformer::norm(const TokenLayout& layout, Parameter* weight) const {
  return {weight, config_.model.norm_eps, layout.graded()};
}

Sublayer::Result Transformer::run_block(Tape& tape, const Pass& pass, const Block& block, const Variable& x) const {
  const RmsNorm attention_norm = norm(pass.layout, block.attention_norm), ffn_norm = norm(pass.layout, block.ffn_norm);
  const Variable attention_in = tape.apply(attention_norm, x);
  auto [attended, losses] = block.attention->forward(tape, pass, attention_in);
  const auto observe = [&](Site site, const Variable& in, const Variable& out) {
    if (pass.batch.observer) (*pass.batch.observer)({{block.layer, site}, pass.layout, in.value, out.value});
  };
  observe(Site::attention, attention_in, attended);
  tape.release(attention_in, attention_norm, x);
  const auto drop_result = [&](Site half, const Sublayer& of, Parameter* rate, Variable& result) {
    result = drop(tape, pass, {dropout_site(block.layer, half), rate, of.output_matrix()}, result, losses);
  };
  drop_result(Site::attention, *block.attention, block.attention_rate, attended);
  const auto [middle, ffn_in] = tape.apply(SumNorm{ffn_norm}, x, attended);
  auto [y, ffn_losses] = block.ffn->forward(tape, pass, ffn_in);
  observe(Site::ffn, ffn_in, y);
  tape.release(ffn_in, ffn_norm, middle);
  losses.insert(losses.end(), ffn_losses.begin(), ffn_losses.end());
  drop_result(Site::ffn, *block.ffn, block.ffn_rate, y);
  return {tape.apply(Sum{}, middle, y), std::move(losses)};
}

Variable Transformer::embed(Tape& tape, const TokenLayout& layout, const Tensor& tokens) const {
  const Embedding embedding{.table = embedding_, .tokens = tokens, .first = words_.first, .vocab = config_.model.vocab};
  return layout.from_matrix(tape, tape.apply(embedding));
}

Variable Transformer::embed_inputs(Tape& tape, const Pass& pass, Losses& losses) const {
  std::vector<Loss> own;
  const Variable embedded =
      drop(tape, pass, {embedding_site, embedding_rate_, embedding_}, embed(tape, pass.layout, pass.batch.inputs), own);
  for (const Loss& loss : own) losses.layers.push_back({0, loss});
  return embedded;
}

Variable Transformer::run_recomputable(Tape& tape, std::int64_t layer, BlockRun run, const Variable& x,
                                       Losses& losses) const {
  // Kinds of the losses, which are the results after the first.
  const auto kinds = std::make_shared<std::vector<LossKind>>();
  const auto run_flat = [run = std::move(run), kinds](Tape& inner, const Variable& input) {
    const auto [y, own] = run(inner, input);
    std::vector<Variable> results{y};
    kinds->clear();
    for (const Loss& loss : own) {
      results.push_back(loss.value);
      kinds->push_back(loss.kind);
    }
    return results;
  };
  const std::vector<Variable> results =
      config_.model.recompute == Recompute::full ? tape.recompute(run_flat, x) : run_flat(tape, x);
  for (std::size_t i = 0; i < kinds->size(); ++i) losses.layers.push_back({layer, {(*kinds)[i], results[i + 1]}});
  return results[0];
}

Variable Transformer::blocks(Tape& tape, Pass pass, Variable x, Losses& losses, std::span<KeyValueCache> caches) const {
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const Block& block = blocks_[b];
    if (!caches.empty()) pass.cache = &caches[b];
    const auto run = [this, &block, pass](Tape& inner, const Variable& input) {
      return run_block(inner, pass, block, input);
    };
    x = run_recomputable(tape, block.layer, run, x, losses);
    if (pass.batch.layer_sums) measure(*pass.batch.layer_sums, block.layer, x.value);
  }
  return x;
}

void Transformer::measure(const LayerSums& sums, std::int64_t layer, const Tensor& y) const {
  const Tensor rows = Tensor::empty(stream_, DType::f64, {y.shape()[0]});
  dispatch_float(y.dtype(), [&]<class T>() {
    launch(stream_, AddSquares<T>{.x = y.matrix<const T>(),
                                  .rows = rows.span<double>(),
                                  .y = sums.squares.slice(layer, 1).span<double>()});
  });
}

std::array<Variable, 3> Transformer::run_head(Tape& tape, const TokenLayout& layout, const Variable& x,
                                              const TokenBatch& batch, const HeadLosses& wanted) const {
  const LinearCrossEntropy loss{.weight = head_,
                                .targets = batch.targets,
                                .chunk = config_.model.loss_chunk,
                                .group = &mesh_->tensor,
                                .words = words_,
                                .vocab = config_.model.vocab,
                                .z = wanted.z,
                                .pair_len = wanted.consistency ? batch.seq_len : 0,
                                .losses = batch.token_losses,
                                .largest_logit = batch.layer_sums ? batch.layer_sums->largest_logit : Tensor()};
  return tape.apply(loss, layout.to_matrix(tape, x));
}

TokenLayout Transformer::layout_of(std::int64_t tokens, std::int64_t seq_len) const {
  return {mesh_->tensor, config_.parallel.sequence, tokens, seq_len};
}

Shape Transformer::boundary(std::int64_t tokens, std::int64_t seq_len) const {
  return {config_.parallel.sequence ? layout_of(tokens, seq_len).own().count : tokens, config_.model.hidden};
}

Transformer::StageResult Transformer::forward_stage(Tape& tape, const TokenBatch& batch, const Variable& x) {
  require(batch.seq_len <= config_.batch.seq_len, "sequences of {} tokens: this model supports at most {}",
          batch.seq_len, config_.batch.seq_len);
  require(x.value.defined() != first_stage(), "{}",
          first_stage() ? "the first pipeline stage reads tokens, but received the result of another stage"
                        : "a later pipeline stage received no result of the previous stage");
  const Pass pass{.batch = batch,
                  .layout = layout_of(batch.tokens(), batch.seq_len),
                  .rope = rope_,
                  .counts = counting_,
                  .limits = batch.training() || !trains_,
                  .skip_top = skip_top_};
  tape.release_results(config_.model.recompute == Recompute::selective);
  StageResult result;
  const Variable y = blocks(tape, pass, first_stage() ? embed_inputs(tape, pass, result.losses) : x, result.losses);
  if (!last_stage()) {
    result.y = y;
    return result;
  }
  const Variable normed = tape.apply(norm(pass.layout, final_norm_), y);
  HeadLosses wanted;
  if (batch.training()) wanted = {.z = config_.model.z_loss > 0, .consistency = config_.model.consistency > 0};
  const auto [cross_entropy, z, divergence] = run_head(tape, pass.layout, normed, batch, wanted);
  result.losses.cross_entropy = cross_entropy;
  const std::int64_t last = config_.model.layers - 1;
  if (wanted.z) result.losses.layers.push_back({last, {LossKind::head_z, z}});
  if (wanted.consistency) result.losses.layers.push_back({last, {LossKind::consistency, divergence}});
  if (batch.training()) run_modules(tape, pass, normed, result.losses);
  return result;
}

Transformer::Losses Transformer::forward(Tape& tape, const TokenBatch& batch) {
  require(last_stage(), "only the last pipeline stage computes losses");
  return forward_stage(tape, batch, {}).losses;
}

std::vector<KeyValueCache> Transformer::new_caches(std::int64_t capacity) const {
  std::vector<KeyValueCache> caches;
  for (const Block& block : blocks_) {
    caches.push_back({.capacity = capacity, .window = window_of(config_.model, block.layer)});
  }
  return caches;
}

Tensor Transformer::next_logits(std::span<const std::int32_t> tokens, std::vector<KeyValueCache>& caches) const {
  const auto count = static_cast<std::int64_t>(tokens.size());
  require_usage(first_stage() && last_stage(), "generation needs all blocks on one rank: set parallel.pipeline = 1");
  require_usage(mesh_->tensor.size() == 1, "generation needs all heads on one rank: set parallel.tensor = 1");
  require(count > 0 && caches.at(0).length + count <= config_.batch.seq_len,
          "{} tokens of context and {} new ones: the model supports {} in all", caches.at(0).length, tokens.size(),
          config_.batch.seq_len);
  Tape tape(stream_, Tape::Mode::inference);
  const Tensor inputs = Tensor::empty(stream_, DType::i32, {count});
  copy_to_device(stream_, inputs.span<std::int32_t>(), tokens);
  const Pass pass{
      .batch = {.inputs = inputs, .targets = {}, .sequences = 1, .seq_len = count, .first_token = caches[0].length},
      .layout = TokenLayout(count, count),
      .rope = rope_,
      .counts = false,
      .limits = true,
      .skip_top = skip_top_};
  Losses unused;
  const Variable y = blocks(tape, pass, embed(tape, pass.layout, inputs), unused, caches);
  const Variable last{y.value.slice(count - 1, 1)};
  return tape.apply(Linear{head_}, tape.apply(norm(TokenLayout(1, 1), final_norm_), last)).value;
}

}  // namespace lyceum
