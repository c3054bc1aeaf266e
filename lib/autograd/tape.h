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

/// A tensor on a tape. `id` identifies its gradient; no_gradient if it has none (a constant, or a tape for inference).
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

/// Records operations in the forward pass and traverses them in reverse in the backward pass. An operation is a struct
/// with its constants and parameters as members, and these functions:
///
///   struct Op {
///     struct Saved { … };  // what backward and weight_grad need; filled by forward
///     Tensor forward(const Stream&, Saved&, const Tensor& x…) const;  // or std::array<Tensor, N> for N results
///     std::array<Tensor, inputs> backward(const Stream&, Saved&, const Tensor& dy…) const;  // dx of each input
///     std::vector<Parameter*> parameters() const;                        // only if it has parameters, with
///     void weight_grad(const Stream&, Saved&, const Tensor& dy…) const;  // which adds to their gradients
///   };
///
/// Example: y = x · Wᵀ with x [tokens, in], W [out, in], y [tokens, out].
///
///   struct Product {
///     Parameter* weight;
///     struct Saved { Tensor x; };
///     Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const {
///       saved.x = x;  // shares the memory of x and keeps it alive until weight_grad
///       const Tensor y = Tensor::empty(stream, x.dtype(), {x.shape()[0], weight->shape[0]});
///       multiply_transposed(stream, x, weight->value, y);
///       return y;
///     }
///     std::array<Tensor, 1> backward(const Stream& stream, Saved&, const Tensor& dy) const {
///       const Tensor dx = Tensor::empty(stream, dy.dtype(), {dy.shape()[0], weight->shape[1]});
///       multiply(stream, dy, weight->value, dx);
///       return {dx};
///     }
///     std::vector<Parameter*> parameters() const { return {weight}; }
///     void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const {
///       add_weight_grad(stream, dy, saved.x, *weight);  // adds: others contribute to the same gradient
///     }
///   };
///
///   Tape tape(stream);
///   const Variable x = tape.leaf(input);
///   const Variable y = tape.apply(Product{.weight = &w}, x);
///   tape.backward({{.root = y, .gradient = dy}});  // adds dyᵀ · x to w.gradient
///   const Tensor dx = tape.gradient(x);            // dy · W
///
/// Rules:
/// - backward and weight_grad are separate calls, so that a pipeline schedule may run the weight gradients later.
/// - dy is undefined for a result on which no seed of backward() depends. backward is not called if all dy are
///   undefined. It returns an undefined tensor for a gradient that is zero.
/// - Parameters that are not trained have no gradient. weight_grad is not called if none of them is trained, and must
///   skip the ones that are not.
/// - An operation with several results may define `static constexpr std::size_t weight_grad_reads`, the index of the
///   only result whose dy weight_grad reads. The other dy are freed after backward.
/// - An operation whose backward adds the weight gradients too returns true from `bool weights_in_backward() const`.
///   Its weight_grad then has nothing to add and is not delayed.
/// - An operation whose weight gradients are complete only after a transfer from other ranks may start it in
///   weight_grad, wait for it in `void finish_weight_grad(const Stream&) const`, and so overlap it with what the tape
///   does in between. Until then its parameters' gradients are not final. See finish_weight_grads_here().
/// - If a unit's memory is managed (UnitMemory), the tape notifies its manager before an operation reads the unit's
///   values or adds to its gradients.
/// - weight_grad adds to gradients: the tape clears those that are empty (see Parameter) before the call. For an
///   operation that defines `static constexpr bool fills_empty_gradients = true`, the tape leaves them empty. The
///   operation must then call Parameter::contribute() for each parameter, which returns whether to add to the gradient
///   or to write it.
class Tape {
 public:
  enum class Mode { inference, record };
  enum class WeightGrad { now, later };

  explicit Tape(Stream stream, Mode mode = Mode::record) : stream_(std::move(stream)), mode_(mode) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  const Stream& stream() const { return stream_; }
  bool recording() const { return mode_ == Mode::record; }
  /// True while recompute() runs a block for the second time. Statistics must not be added up again then.
  bool replaying() const { return replaying_; }

  /// Makes `value` an input whose gradient backward() computes.
  Variable leaf(Tensor value);

  /// Runs op.forward() and records the operation if the tape records and a gradient is needed. Returns one Variable, or
  /// std::array<Variable, N> if the operation has N results. The tape copies `op`, whose parameters must stay valid
  /// until their weight gradients have been computed.
  template <class Op, class... Inputs>
  auto apply(Op op, const Inputs&... inputs);

  /// Runs `block` on x and keeps only x; backward() runs the block a second time, so what the block refers to must stay
  /// valid until then. The block must use the tape that it receives, and x must be the only Variable with a gradient
  /// that it reads from outside. Everything that the block computes for use outside must be among its results, in the
  /// same order both times.
  using Block = std::function<std::vector<Variable>(Tape&, const Variable&)>;
  std::vector<Variable> recompute(Block block, const Variable& x);

  /// Enables release(), which is disabled at first. A tape that does not record never releases.
  void release_results(bool on) { releases_ = on && recording(); }
  /// Frees the memory of `result`; `op` with `inputs` must compute the same result. Call it after all operations that
  /// read `result` in the forward pass: backward() computes it again before it reaches them. If an input is released
  /// too, release it after `result`.
  template <class Op, class... Inputs>
  void release(const Variable& result, Op op, const Inputs&... inputs);

  /// Marks a point of the tape. When the backward pass reaches it, it calls finish_weight_grad() of all operations
  /// recorded after it; weight_gradients() does this if weight gradients are delayed. Call it before an operation with
  /// finish_weight_grad() is recorded; without it, backward() throws an Error.
  void finish_weight_grads_here();

  /// A variable at which backward() starts, and its gradient.
  struct Seed {
    Variable root;
    Tensor gradient;
  };
  /// Returns the seed of a loss: gradient `scale` for a Variable with one element. Throws an Error if it has more.
  Seed seed(const Variable& scalar, double scale) const;
  /// Runs the backward pass. Can be called once; afterwards gradient() has the gradients of leaves. With
  /// WeightGrad::later, weight gradients wait for weight_gradients(). Throws an Error on a tape for inference.
  void backward(const std::vector<Seed>& seeds, WeightGrad weight_grad = WeightGrad::now);
  /// Computes the delayed weight gradients, in the order of the backward pass.
  void weight_gradients();
  /// Returns the gradient of a leaf; undefined if no seed of backward() depends on it.
  Tensor gradient(const Variable& variable) const;

  /// Sets a function to be called when this tape has added its last contribution to a parameter's gradient.
  void on_gradient_final(std::function<void(Parameter&)> listener) { gradient_final_ = std::move(listener); }

 private:
  struct Node {
    virtual ~Node() = default;
    virtual void backward(Tape& tape) = 0;
    /// True if it has weight gradients that weight_grad() may compute later.
    virtual bool may_delay() const = 0;
    virtual void weight_grad(Tape& tape) = 0;
    /// True if finish() must be called after weight_grad().
    virtual bool unfinished() const { return false; }
    virtual void finish(Tape&) {}
  };
  template <class Op, std::size_t Inputs, std::size_t Outputs>
  struct OpNode;
  struct RecomputeNode;
  struct FinishNode;
  template <class Op, std::size_t Inputs>
  struct RemakeNode;

  // Gradients of Variables, by id. take() removes the gradient and returns it; undefined if there is none.
  int new_id() { return next_id_++; }
  void accumulate(int id, Tensor gradient);
  Tensor take(int id);
  // Notify the memory managers of the parameters' units before use. trained() removes parameters that are not trained.
  static void need_values(const std::vector<Parameter*>& parameters, UnitMemory::Pass pass);
  static std::vector<Parameter*> trained(std::vector<Parameter*> parameters);
  static void need_gradients(const std::vector<Parameter*>& trained);
  void clear_empty_gradients(const std::vector<Parameter*>& trained) const;
  // Calls weight_grad() of a node, and keeps it if it is to be finished. finish_weight_grads() finishes all such nodes.
  void add_weight_grad(std::unique_ptr<Node> node);
  void finish_weight_grads();
  void require_finished() const;
  // Count the uses of a parameter in the forward pass, and its contributions in the backward pass.
  void used(Parameter& parameter) { ++uses_[&parameter]; }
  void contributed(Parameter& parameter);

  Stream stream_;
  Mode mode_;
  bool replaying_ = false, releases_ = false;
  int next_id_ = 0;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Node>> delayed_, unfinished_;
  std::unordered_map<int, Tensor> gradients_;
  std::unordered_map<Parameter*, int> uses_;
  std::function<void(Parameter&)> gradient_final_;
};

// ---------------------------------------------------------------------------------------------------------------------

template <class Op, std::size_t Inputs, std::size_t Outputs>
struct Tape::OpNode final : Node {
  static constexpr bool weighted = requires(const Op& op) { op.parameters(); };
  static constexpr bool fills = requires { requires Op::fills_empty_gradients; };
  static constexpr bool finishes = requires(const Op& op, const Stream& stream) { op.finish_weight_grad(stream); };

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
      if (!may_delay()) prepare_gradients(tape, trained(op.parameters()));
    }
    auto d_inputs = std::apply([&](const auto&... dy) { return op.backward(tape.stream(), saved, dy...); }, d_outputs);
    static_assert(std::tuple_size_v<decltype(d_inputs)> == Inputs, "backward must return one gradient per input");
    for (std::size_t i = 0; i < Inputs; ++i) {
      if (d_inputs[i].defined()) tape.accumulate(inputs[i], std::move(d_inputs[i]));
    }
    if constexpr (requires { Op::weight_grad_reads; }) {
      for (std::size_t o = 0; o < Outputs; ++o) {
        if (o != Op::weight_grad_reads) d_outputs[o] = {};
      }
    }
  }

  bool may_delay() const override {
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
      prepare_gradients(tape, moved);
      if (any) std::apply([&](const auto&... dy) { op.weight_grad(tape.stream(), saved, dy...); }, d_outputs);
      if constexpr (finishes) {
        if (any) {
          finishing = true;
          saved = {};
          d_outputs = {};
          return;
        }
      }
      for (Parameter* parameter : moved) tape.contributed(*parameter);
    }
  }

  static void prepare_gradients(const Tape& tape, const std::vector<Parameter*>& moved) {
    need_gradients(moved);
    if constexpr (!fills) tape.clear_empty_gradients(moved);
  }

  bool unfinished() const override { return finishing; }
  void finish(Tape& tape) override {
    if constexpr (finishes) {
      const ProfileScope timed(profile_of(tape.stream()), typeid(Op), " wgrad");
      op.finish_weight_grad(tape.stream());
      for (Parameter* parameter : trained(op.parameters())) tape.contributed(*parameter);
    }
  }

  Op op;
  typename Op::Saved saved;
  std::array<int, Inputs> inputs;
  std::array<int, Outputs> outputs;
  std::array<Tensor, Outputs> d_outputs;
  bool finishing = false;  // weight_grad() has started what finish() waits for
};

template <class Op, class... Inputs>
auto Tape::apply(Op op, const Inputs&... inputs) {
  static_assert((std::is_same_v<Inputs, Variable> && ...), "the inputs of an operation must be Variables");
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

/// Computes a released result again. It is recorded after the operations that use the result, so the backward pass
/// reaches it before them.
template <class Op, std::size_t Inputs>
struct Tape::RemakeNode final : Node {
  RemakeNode(Op op, Tensor result, std::array<Tensor, Inputs> inputs)
      : op(std::move(op)), result(std::move(result)), inputs(std::move(inputs)) {}

  void backward(Tape& tape) override {
    const ProfileScope timed(profile_of(tape.stream()), typeid(Op), " again");
    if constexpr (requires { op.parameters(); }) need_values(op.parameters(), UnitMemory::Pass::backward);
    typename Op::Saved unused;
    const auto forward = [&](const auto&... x) { return op.forward(tape.stream(), unused, x...); };
    result.adopt_memory(std::apply(forward, inputs));
  }
  bool may_delay() const override { return false; }
  void weight_grad(Tape&) override {}

  Op op;
  Tensor result;
  std::array<Tensor, Inputs> inputs;
};

template <class Op, class... Inputs>
void Tape::release(const Variable& result, Op op, const Inputs&... inputs) {
  if (!releases_) return;
  using Remake = RemakeNode<Op, sizeof...(Inputs)>;
  result.value.free_memory();
  nodes_.push_back(
      std::make_unique<Remake>(std::move(op), result.value, std::array<Tensor, sizeof...(Inputs)>{inputs.value...}));
}

}  // namespace lyceum
