#pragma once

#include <array>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// A tensor on a tape. `id` names its gradient; no_gradient where none is wanted.
struct Variable {
  static constexpr int no_gradient = -1;
  Tensor value;
  int id = no_gradient;
};

namespace detail {
template <class T>
struct Results {
  static constexpr std::size_t count = 1;
};
template <std::size_t N>
struct Results<std::array<Tensor, N>> {
  static constexpr std::size_t count = N;
};
}  // namespace detail

/// Records operations and walks them backwards. An operation is a struct of its constants and parameters:
///
///   struct Op {
///     struct Saved { … };                                        // what backward needs: explicit, and no more
///     Tensor forward(const Stream&, Saved&, const Tensor& x…) const;    // or std::array<Tensor, N>
///     std::array<Tensor, inputs> backward(const Stream&, Saved&, const Tensor& dy…) const;
///     std::vector<Parameter*> parameters() const;                // with it:
///     void weight_grad(const Stream&, Saved&, const Tensor& dy…) const; // adds to each parameter's gradient
///   };
///
/// An operation of several results may say which one's gradient its weight gradient reads, by its place:
/// `static constexpr std::size_t weight_grad_reads`; the others are then freed when backward is done.
/// One whose backward may add its weight gradients as well says whether it does: `bool weights_in_backward() const`;
/// they are not put off then, and weight_grad() has nothing to add.
/// Parameters that are not trained have no gradient: weight_grad() is not called where all are such, and both leave
/// them out elsewhere.
/// Units whose memory comes and goes are notified before an operation reads their values or adds to their gradients.
/// A result that nothing depended on has an undefined dy; an undefined input gradient means zero. dgrad and wgrad are
/// separate calls, so that a schedule may run the weight gradients later.
class Tape {
 public:
  enum class Mode { inference, record };
  enum class WeightGrad { now, later };

  explicit Tape(Stream stream, Mode mode = Mode::record) : stream_(std::move(stream)), mode_(mode) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  const Stream& stream() const { return stream_; }
  bool recording() const { return mode_ == Mode::record; }
  /// Whether this tape runs a block for the second time, to recompute what was not kept: statistics were taken before.
  bool replaying() const { return replaying_; }

  /// An input whose gradient will be asked for.
  Variable leaf(Tensor value);

  template <class Op, class... Inputs>
  auto apply(Op op, const Inputs&... inputs);

  /// Runs `block` keeping only x; backward runs it again. Everything that it computes must be a result.
  using Block = std::function<std::vector<Variable>(Tape&, const Variable&)>;
  std::vector<Variable> recompute(Block block, const Variable& x);

  /// Whether release() frees anything: off at first, and always on a tape that does not record.
  void release_results(bool on) { releases_ = on && recording(); }
  /// Frees `result`, which `op` makes of `inputs`, when all that uses it has run forwards; backward makes it again
  /// before it comes to what used it. Inputs released as well must be so after it.
  template <class Op, class... Inputs>
  void release(const Variable& result, Op op, const Inputs&... inputs);

  struct Seed {
    Variable root;
    Tensor gradient;
  };
  /// The derivative of a scalar by itself, times `scale`.
  Seed seed(const Variable& scalar, double scale) const;
  /// Walks the tape backwards, once. Gradients of leaves are then in gradient().
  void backward(const std::vector<Seed>& seeds, WeightGrad weight_grad = WeightGrad::now);
  /// Runs the weight gradients that were put off, in the order of backward.
  void weight_gradients();
  /// Undefined when nothing depended on it.
  Tensor gradient(const Variable& variable) const;

  /// Called when this tape has added its last contribution to a parameter's gradient.
  void on_gradient_final(std::function<void(Parameter&)> listener) { gradient_final_ = std::move(listener); }

 private:
  struct Node {
    virtual ~Node() = default;
    virtual void backward(Tape& tape) = 0;
    /// Whether it has weight gradients that may come later.
    virtual bool may_put_off() const = 0;
    virtual void weight_grad(Tape& tape) = 0;
  };
  template <class Op, std::size_t Inputs, std::size_t Outputs>
  struct OpNode;
  struct RecomputeNode;
  template <class Op, std::size_t Inputs>
  struct RemakeNode;

  int new_id() { return next_id_++; }
  void accumulate(int id, Tensor gradient);
  Tensor take(int id);
  static void need_values(const std::vector<Parameter*>& parameters, UnitMemory::Pass pass);
  static std::vector<Parameter*> trained(std::vector<Parameter*> parameters);
  static void need_gradients(const std::vector<Parameter*>& trained);
  void used(Parameter& parameter) { ++uses_[&parameter]; }
  void contributed(Parameter& parameter);

  Stream stream_;
  Mode mode_;
  bool replaying_ = false, releases_ = false;
  int next_id_ = 0;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Node>> put_off_;
  std::unordered_map<int, Tensor> gradients_;
  std::unordered_map<Parameter*, int> uses_;
  std::function<void(Parameter&)> gradient_final_;
};

// ---------------------------------------------------------------------------------------------------------------------

template <class Op, std::size_t Inputs, std::size_t Outputs>
struct Tape::OpNode final : Node {
  static constexpr bool weighted = requires(const Op& op) { op.parameters(); };

  explicit OpNode(Op op) : op(std::move(op)) {}

  void backward(Tape& tape) override {
    const ProfileScope timed(profile_of(tape.stream()), typeid(Op), " dgrad");
    bool any = false;
    for (std::size_t o = 0; o < Outputs; ++o) {
      d_outputs[o] = tape.take(outputs[o]);
      any = any || d_outputs[o].defined();
    }
    if (!any) return;
    if constexpr (weighted) {
      need_values(op.parameters(), UnitMemory::Pass::backward);
      if (!may_put_off()) need_gradients(trained(op.parameters()));
    }
    auto d_inputs = std::apply([&](const auto&... dy) { return op.backward(tape.stream(), saved, dy...); }, d_outputs);
    static_assert(std::tuple_size_v<decltype(d_inputs)> == Inputs, "backward returns a gradient for every input");
    for (std::size_t i = 0; i < Inputs; ++i) {
      if (d_inputs[i].defined()) tape.accumulate(inputs[i], std::move(d_inputs[i]));
    }
    if constexpr (requires { Op::weight_grad_reads; }) {
      for (std::size_t o = 0; o < Outputs; ++o) {
        if (o != Op::weight_grad_reads) d_outputs[o] = {};
      }
    }
  }

  bool may_put_off() const override {
    if constexpr (requires { op.weights_in_backward(); }) return !op.weights_in_backward();
    return weighted;
  }

  void weight_grad(Tape& tape) override {
    if constexpr (weighted) {
      const std::vector<Parameter*> moved = trained(op.parameters());
      if (moved.empty()) return;
      const ProfileScope timed(profile_of(tape.stream()), typeid(Op), " wgrad");
      bool any = false;
      for (const Tensor& dy : d_outputs) any = any || dy.defined();
      need_gradients(moved);
      if (any) std::apply([&](const auto&... dy) { op.weight_grad(tape.stream(), saved, dy...); }, d_outputs);
      for (Parameter* parameter : moved) tape.contributed(*parameter);
    }
  }

  Op op;
  typename Op::Saved saved;
  std::array<int, Inputs> inputs;
  std::array<int, Outputs> outputs;
  std::array<Tensor, Outputs> d_outputs;
};

template <class Op, class... Inputs>
auto Tape::apply(Op op, const Inputs&... inputs) {
  static_assert((std::is_same_v<Inputs, Variable> && ...), "the inputs of an operation are Variables");
  using Result = decltype(op.forward(stream_, std::declval<typename Op::Saved&>(), inputs.value...));
  constexpr std::size_t count = detail::Results<Result>::count;

  using Recorded = OpNode<Op, sizeof...(Inputs), count>;
  auto node = std::make_unique<Recorded>(std::move(op));
  if constexpr (Recorded::weighted) {
    need_values(node->op.parameters(), replaying_ ? UnitMemory::Pass::backward : UnitMemory::Pass::forward);
  }
  Result result = [&] {
    const ProfileScope timed(profile_of(stream_), typeid(Op), " forward");
    return node->op.forward(stream_, node->saved, inputs.value...);
  }();
  std::array<Variable, count> variables;
  if constexpr (count == 1 && std::is_same_v<Result, Tensor>) {
    variables[0].value = std::move(result);
  } else {
    for (std::size_t o = 0; o < count; ++o) variables[o].value = std::move(result[o]);
  }
  if constexpr (Recorded::weighted) {
    for (Parameter* parameter : node->op.parameters()) used(*parameter);
  }
  if (recording() && (Recorded::weighted || ((inputs.id != Variable::no_gradient) || ...))) {
    node->inputs = {inputs.id...};
    for (std::size_t o = 0; o < count; ++o) node->outputs[o] = variables[o].id = new_id();
    nodes_.push_back(std::move(node));
  }
  if constexpr (std::is_same_v<Result, Tensor>) {
    return variables[0];
  } else {
    return variables;
  }
}

/// Is recorded after the operations that use a result, so that backward passes it before them.
template <class Op, std::size_t Inputs>
struct Tape::RemakeNode final : Node {
  RemakeNode(Op op, Tensor result, std::array<Tensor, Inputs> inputs)
      : op(std::move(op)), result(std::move(result)), inputs(std::move(inputs)) {}

  void backward(Tape& tape) override {
    const ProfileScope timed(profile_of(tape.stream()), typeid(Op), " again");
    if constexpr (requires { op.parameters(); }) need_values(op.parameters(), UnitMemory::Pass::backward);
    typename Op::Saved unused;
    const auto forward = [&](const auto&... x) { return op.forward(tape.stream(), unused, x...); };
    result.take_back(std::apply(forward, inputs));
  }
  bool may_put_off() const override { return false; }
  void weight_grad(Tape&) override {}

  Op op;
  Tensor result;
  std::array<Tensor, Inputs> inputs;
};

template <class Op, class... Inputs>
void Tape::release(const Variable& result, Op op, const Inputs&... inputs) {
  if (!releases_) return;
  using Remake = RemakeNode<Op, sizeof...(Inputs)>;
  result.value.give_up();
  nodes_.push_back(
      std::make_unique<Remake>(std::move(op), result.value, std::array<Tensor, sizeof...(Inputs)>{inputs.value...}));
}

}  // namespace lyceum
