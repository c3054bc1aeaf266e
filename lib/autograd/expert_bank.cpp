#include "autograd/expert_bank.h"

#include "autograd/expert_matrices.h"
#include "core/device_table.h"
#include "kernels/grouped_activation.h"
#include "kernels/segment_bias.h"

namespace lyceum {

namespace {

using Expert = ExpertBank::Expert;

/// A list of vectors, one of each expert, in device memory. Undefined if the experts have none.
struct VectorTable {
  Tensor table;

  /// Lists the values of the experts' parameters `which`, if they have such parameters.
  template <class T>
  static VectorTable of_values(const Stream& stream, const ExpertBank& bank, Parameter* Expert::*which) {
    std::vector<const T*> values;
    for (const Expert& expert : *bank.experts) {
      if (const Parameter* const bias = expert.*which) values.push_back(bias->value.data<const T>());
    }
    return made(stream, bank, values);
  }
  /// Lists the gradients of the experts' parameters `which`; null for those that are not trained.
  template <class A>
  static VectorTable of_gradients(const Stream& stream, const ExpertBank& bank, Parameter* Expert::*which) {
    std::vector<A*> gradients;
    for (const Expert& expert : *bank.experts) {
      const Parameter* const bias = expert.*which;
      if (bias) gradients.push_back(bias->trained() ? bias->gradient.data<A>() : nullptr);
    }
    return made(stream, bank, gradients);
  }

  template <class T>
  SegmentVectors<T> list() const {
    return table.defined() ? SegmentVectors<T>(rows_of<T*>(table)) : SegmentVectors<T>();
  }

 private:
  template <class T>
  static VectorTable made(const Stream& stream, const ExpertBank& bank, const std::vector<T>& vectors) {
    if (vectors.empty()) return {};
    require(vectors.size() == bank.experts->size(), "only {} of {} experts have biases", vectors.size(),
            bank.experts->size());
    return {table_of(stream, vectors)};
  }
};

/// Returns the columns of y to which the biases of the experts' outputs belong on this rank; none without such biases.
Range output_bias_columns(const ExpertBank& bank) {
  return bank.experts->empty() || !bank.experts->front().down_bias ? Range{} : bank.experts->front().down_columns;
}

/// Returns the output of the bank for each row. The rows are those of x, or those of `copies` if it is set.
Tensor outputs_of(const Stream& stream, const ExpertBank& bank, const TokenRows& copies, ExpertBank::Saved& saved,
                  const Tensor& x) {
  const Segments rows = bank.segments->view();
  const auto& experts = *bank.experts;
  const std::int64_t hidden = x.shape()[1], given = copies.rows(x), total = bank.segments->total();
  require(total == given && rows.count() == std::ssize(experts),
          "{} rows in {} segments do not match {} experts and {} rows of input", total, rows.count(), experts.size(),
          given);
  std::vector<std::int64_t> outer(experts.size(), hidden), in, inner;
  for (const Expert& expert : experts) {
    inner.push_back(expert.down->shape[1]);
    in.push_back(inputs_of(bank.activation.kind) * inner.back());
  }
  saved.x = x;
  saved.outer = SegmentLayout(stream, *bank.segments, outer);
  saved.in = SegmentLayout(stream, *bank.segments, in);
  saved.inner = SegmentLayout(stream, *bank.segments, inner);
  saved.hidden_rows = Tensor::empty(stream, x.dtype(), {saved.in.size()});
  const Tensor activated = Tensor::empty(stream, x.dtype(), {saved.inner.size()});
  const Tensor y = Tensor::empty(stream, x.dtype(), {given, hidden});
  dispatch_float(x.dtype(), [&]<class T>() {
    const VectorTable biases = VectorTable::of_values<T>(stream, bank, &Expert::in_bias);
    launch(stream, GemmThenActivation<T>{.function = bank.activation,
                                         .segments = rows,
                                         .x = saved.outer.over(x.data<const T>()),
                                         .weights = expert_values<T>(experts, &Expert::in),
                                         .hidden = saved.in.over(saved.hidden_rows.data<T>()),
                                         .activated = saved.inner.over(activated.data<T>()),
                                         .picked = copies.picked<T>(x),
                                         .bias = biases.list<const T>()});
    launch(stream, GroupedGemm<T>{.segments = rows,
                                  .x = saved.inner.over(activated.data<const T>()),
                                  .weights = expert_values<T>(experts, &Expert::down),
                                  .y = saved.outer.over(y.data<T>()),
                                  .transpose_weights = true});
    const Range columns = output_bias_columns(bank);
    if (columns.count == 0) return;
    const VectorTable of_outputs = VectorTable::of_values<T>(stream, bank, &Expert::down_bias);
    launch(stream, AddSegmentBias<T>{.segments = rows,
                                     .y = saved.outer.over(y.data<T>()),
                                     .bias = of_outputs.list<const T>(),
                                     .columns = columns});
  });
  return y;
}

/// The gates [tokens, k] and memory for their gradient; both undefined for a bank without gates.
struct GateTensors {
  Tensor values, gradient;

  template <class T>
  RowGates<Accumulator<T>> of_rows(const TokenRows& copies) const {
    using A = Accumulator<T>;
    if (!values.defined()) return {};
    return {.index = copies.pair_of_row.span<const std::int64_t>(),
            .gate = values.span<const A>(),
            .d_gate = gradient.span<A>()};
  }
};

/// Returns the gradient of x. dy is the gradient of the bank's outputs; with copies, of the gate-weighted sums per
/// token.
Tensor input_gradient(const Stream& stream, const ExpertBank& bank, const TokenRows& copies, const GateTensors& gates,
                      ExpertBank::Saved& saved, const Tensor& dy) {
  const Segments rows = bank.segments->view();
  const auto& experts = *bank.experts;
  saved.activated = Tensor::empty(stream, dy.dtype(), {saved.inner.size()});
  saved.d_hidden = Tensor::empty(stream, dy.dtype(), {saved.in.size()});
  dispatch_float(dy.dtype(), [&]<class T>() {
    const VectorTable biases = VectorTable::of_values<T>(stream, bank, &Expert::in_bias);
    launch(stream, GemmThenActivationBackward<T>{.function = bank.activation,
                                                 .segments = rows,
                                                 .dy = saved.outer.over(dy.data<const T>()),
                                                 .weights = expert_values<T>(experts, &Expert::down),
                                                 .hidden = saved.in.over(saved.hidden_rows.data<const T>()),
                                                 .d_hidden = saved.in.over(saved.d_hidden.data<T>()),
                                                 .activated = saved.inner.over(saved.activated.data<T>()),
                                                 .picked = copies.picked<T>(dy),
                                                 .gates = gates.of_rows<T>(copies),
                                                 .bias = biases.list<const T>()});
    const Range columns = output_bias_columns(bank);
    if (columns.count == 0 || !gates.values.defined()) return;
    const VectorTable of_outputs = VectorTable::of_values<T>(stream, bank, &Expert::down_bias);
    launch(stream, SegmentBiasGateGrad<T>{.segments = rows,
                                          .dy = saved.outer.over(dy.data<const T>()),
                                          .bias = of_outputs.list<const T>(),
                                          .gates = gates.of_rows<T>(copies),
                                          .columns = columns,
                                          .picked = copies.picked<T>(dy)});
  });
  saved.hidden_rows = {};
  const Tensor d_rows = Tensor::empty(stream, dy.dtype(), {copies.rows(dy), dy.shape()[1]});
  dispatch_float(dy.dtype(), [&]<class T>() {
    launch(stream, GroupedGemm<T>{.segments = rows,
                                  .x = saved.in.over(saved.d_hidden.data<const T>()),
                                  .weights = expert_values<T>(experts, &Expert::in),
                                  .y = saved.outer.over(d_rows.data<T>())});
  });
  return copies.sums(stream, d_rows);
}

/// Adds to the gradients of the biases, see add_weight_gradients(). `gates`: [tokens, k], undefined for a bank without
/// gates.
template <class T>
void add_bias_gradients(const Stream& stream, const ExpertBank& bank, const TokenRows& copies,
                        const ExpertBank::Saved& saved, const Tensor& gates, const Tensor& dy) {
  using A = Accumulator<T>;
  const Segments rows = bank.segments->view();
  if (const VectorTable in = VectorTable::of_gradients<A>(stream, bank, &Expert::in_bias); in.table.defined()) {
    launch(stream, SegmentBiasGrad<T>{
                       .segments = rows, .dy = saved.in.over(saved.d_hidden.data<const T>()), .d_bias = in.list<A>()});
  }
  const Range columns = output_bias_columns(bank);
  if (columns.count == 0) return;
  SegmentBiasGrad<T> grad{.segments = rows,
                          .dy = saved.outer.over(dy.data<const T>()),
                          .d_bias = {},
                          .columns = columns,
                          .picked = copies.picked<T>(dy)};
  const VectorTable down = VectorTable::of_gradients<A>(stream, bank, &Expert::down_bias);
  grad.d_bias = down.list<A>();
  if (gates.defined()) {
    grad.gate_of_row = copies.pair_of_row.span<const std::int64_t>();
    grad.gate = gates.span<const A>();
  }
  launch(stream, grad);
}

/// Adds to the weights' gradients. Reads what input_gradient() has saved, so it must run after it. `gates`: [tokens,
/// k], undefined for a bank without gates.
void add_weight_gradients(const Stream& stream, const ExpertBank& bank, const TokenRows& copies,
                          const ExpertBank::Saved& saved, const Tensor& gates, const Tensor& dy) {
  const Segments rows = bank.segments->view();
  dispatch_float(dy.dtype(), [&]<class T>() {
    add_bias_gradients<T>(stream, bank, copies, saved, gates, dy);
    add_expert_gradients<T>(stream,
                            {.segments = rows,
                             .dy = saved.in.over(saved.d_hidden.data<const T>()),
                             .x = saved.outer.over(saved.x.data<const T>()),
                             .d_weights = {},
                             .picked = copies.picked<T>(saved.x)},
                            *bank.experts, &Expert::in);
    add_expert_gradients<T>(stream,
                            {.segments = rows,
                             .dy = saved.outer.over(dy.data<const T>()),
                             .x = saved.inner.over(saved.activated.data<const T>()),
                             .d_weights = {},
                             .picked_dy = copies.picked<T>(dy)},
                            *bank.experts, &Expert::down);
  });
}

}  // namespace

Tensor ExpertBank::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  return outputs_of(stream, *this, {}, saved, x);
}

std::array<Tensor, 1> ExpertBank::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  return {input_gradient(stream, *this, {}, {}, saved, dy)};
}

std::vector<Parameter*> ExpertBank::parameters() const {
  std::vector<Parameter*> all;
  for (const Expert& expert : *experts) {
    for (Parameter* const parameter : {expert.in, expert.down, expert.in_bias, expert.down_bias}) {
      if (parameter) all.push_back(parameter);
    }
  }
  return all;
}

void ExpertBank::weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const {
  add_weight_gradients(stream, *this, {}, saved, {}, dy);
}

Tensor GatedBank::forward(const Stream& stream, Saved& saved, const Tensor& x, const Tensor& gates) const {
  saved.gates = gates;
  return copies.sums(stream, outputs_of(stream, bank, copies, saved.bank, x), gates);
}

std::array<Tensor, 2> GatedBank::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const GateTensors gates{saved.gates, Tensor::empty(stream, saved.gates.dtype(), saved.gates.shape())};
  return {input_gradient(stream, bank, copies, gates, saved.bank, dy), gates.gradient};
}

void GatedBank::weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const {
  add_weight_gradients(stream, bank, copies, saved.bank, saved.gates, dy);
}

}  // namespace lyceum
