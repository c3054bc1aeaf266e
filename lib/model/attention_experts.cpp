#include "autograd/grouped_linear.h"
#include "autograd/linear.h"
#include "model/layers.h"
#include "parallel/expert/choice_heads.h"
#include "parallel/expert/combine.h"

namespace lyceum {

AttentionExperts::AttentionExperts(const Config& config, const Mixture& mixture, const std::string& prefix,
                                   const Mesh& mesh, const Units& units)
    : mixture_(mixture),
      mesh_(&mesh),
      heads_(heads_of(config.model, mesh.tensor)),
      router_(config, mixture, prefix, {units.replicated, units.untrained},
              Placement::contiguous(mixture.choices(), 1)) {
  const ProcessGroup& tensor = mesh.tensor;
  const std::int64_t hidden = config.model.hidden, queries = heads_.queries(), keys = heads_.keys();
  const double std = config.model.init_std;
  const auto rows = [&](const std::string& name, std::int64_t own) {
    return RowsOf{prefix + name, own * tensor.size(), {own * tensor.rank(), own}};
  };
  keys_values_ = &units.dense.add(
      stacked_parameter(prefix + "/kv", {rows("/k_proj/weight", keys), rows("/v_proj/weight", keys)}, hidden, std));
  std::vector<Parameter*> all_queries, all_outputs;
  for (std::int64_t e = 0; e < mixture.choices(); ++e) {
    const std::string expert = "/experts/" + std::to_string(e), q = expert + "/q_proj/weight";
    all_queries.push_back(&units.dense.add(stacked_parameter(prefix + q, {rows(q, queries)}, hidden, std)));
    all_outputs.push_back(
        &units.dense.add(sharded_parameter(prefix + expert + "/o_proj/weight", {hidden, queries * tensor.size()}, 1,
                                           {queries * tensor.rank(), queries}, std)));
  }
  queries_ = std::make_shared<const std::vector<Parameter*>>(std::move(all_queries));
  outputs_ = std::make_shared<const std::vector<Parameter*>>(std::move(all_outputs));
}

Sublayer::Result AttentionExperts::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  const auto [gates, index, load, logits] =
      router_.forward(tape, pass, layout.to_run(tape, x), pass.counts ? &tally_ : nullptr);
  const Variable y = chosen(tape, pass, x, layout.gather_runs(tape, gates), layout.gather_runs(tape.stream(), index));
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
  const Attended attended =
      attend(tape, pass, {mixture_.k * heads_.heads, heads_.kv_heads, heads_.head_dim, heads_.weights}, q, kv);
  const Variable answered = tape.apply(RowsOfHeads{heads}, attended.y);
  const Variable answers = tape.apply(GroupedLinear{outputs_, chosen->segments}, answered);
  tape.release(answered, RowsOfHeads{heads}, attended.y);
  attended.release(tape);
  return tape.apply(Combine{chosen}, answers, gates);
}

}  // namespace lyceum
