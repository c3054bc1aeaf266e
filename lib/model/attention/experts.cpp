#include "model/attention/experts.h"

#include <numeric>
#include <utility>

#include "autograd/grouped_linear.h"
#include "autograd/linear.h"
#include "model/attention/attend.h"
#include "parallel/expert/choice_heads.h"
#include "parallel/expert/combine.h"

namespace lyceum {

namespace {

/// Returns the tensors of the half without those of the router.
std::vector<SublayerTensor> tensors_of_experts(const ModelConfig& config, const Mixture& mixture) {
  const AttentionHeads heads = heads_of(config, mixture.id.layer);
  const auto of_expert = [&](SublayerTensor tensor) {
    tensor.chosen = true;
    tensor.choices = {0, mixture.choices()};
    return tensor;
  };
  return {projection_of(config, "k_proj/weight", heads.keys(), "kv"),
          projection_of(config, "v_proj/weight", heads.values(), "kv"),
          of_expert(projection_of(config, "q_proj/weight", heads.queries())), of_expert(output_of(config, heads))};
}

/// Returns the heads of one token: those of each of the k experts that it chooses.
AttentionHeads chosen_heads(AttentionHeads heads, const Mixture& mixture) {
  heads.heads *= mixture.k;
  return heads;
}

}  // namespace

SublayerSpec attention_experts_spec(const Config& config, const Mixture& mixture) {
  std::vector<SublayerTensor> tensors = router_tensors(config, mixture);
  for (SublayerTensor& tensor : tensors_of_experts(config.model, mixture)) tensors.push_back(std::move(tensor));
  return {.id = mixture.id,
          .tensors = std::move(tensors),
          .costs = costs_of(chosen_heads(heads_of(config.model, mixture.id.layer), mixture)),
          .mixture = mixture,
          .make = [](const Config& of, const SublayerSpec& spec,
                     const SublayerContext& context) -> std::unique_ptr<Sublayer> {
            return std::make_unique<AttentionExperts>(of, *spec.mixture, spec.prefix(), context.mesh, context.units);
          }};
}

AttentionExperts::AttentionExperts(const Config& config, const Mixture& mixture, const std::string& prefix,
                                   const Mesh& mesh, const Units& units)
    : mixture_(mixture),
      mesh_(&mesh),
      heads_(chosen_heads(share_of(heads_of(config.model, mixture.id.layer), mesh.tensor), mixture)),
      router_(config, mixture, prefix, {units.replicated, units.untrained},
              Placement::contiguous(mixture.choices(), 1)) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(mixture.choices()));
  std::iota(all.begin(), all.end(), 0);
  const SublayerParameters parameters(tensors_of_experts(config.model, mixture), prefix, mesh, units, all);
  keys_values_ = &parameters.at("k_proj/weight");
  queries_ = std::make_shared<const std::vector<Parameter*>>(parameters.of_choices("q_proj/weight"));
  outputs_ = std::make_shared<const std::vector<Parameter*>>(parameters.of_choices("o_proj/weight"));
}

Sublayer::Result AttentionExperts::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  const auto [gates, index, load, logits] =
      router_.forward(tape, pass, layout.to_own_tokens(tape, x), pass.counts ? &tally_ : nullptr);
  const Variable y =
      chosen(tape, pass, x, layout.gather_own_tokens(tape, gates), layout.gather_own_tokens(tape.stream(), index));
  return {layout.from_matrix(tape, y), router_.losses(tape, pass, load, mesh_->data)};
}

Variable AttentionExperts::chosen(Tape& tape, const Pass& pass, const Variable& x, const Variable& gates,
                                  const Tensor& index) const {
  const auto chosen = plan_rows(tape.stream(), mixture_.choices(), index);
  const auto heads = std::make_shared<const ChoiceHeads>(tape.stream(), chosen, heads_.kv_heads);
  const Variable all = pass.layout.to_matrix(tape, x);
  const Variable rows = tape.apply(GroupedLinear{queries_, chosen->segments, chosen->copies}, all);
  const Variable q = tape.apply(HeadsOfChoices{heads}, rows), kv = tape.apply(Linear{keys_values_}, all);
  pass.layout.release_matrix(tape, all, x);
  const Attended attended = attend(tape, pass, heads_, q, kv);
  const Variable answered = tape.apply(RowsOfHeads{heads}, attended.y);
  const Variable answers = tape.apply(GroupedLinear{outputs_, chosen->segments}, answered);
  tape.release(answered, RowsOfHeads{heads}, attended.y);
  attended.release(tape);
  return tape.apply(Combine{chosen}, answers, gates);
}

}  // namespace lyceum
