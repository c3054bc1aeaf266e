#include "autograd/tape.h"

#include "core/copy.h"
#include "kernels/elementwise.h"

namespace lyceum {

Variable Tape::leaf(Tensor value) { return {std::move(value), recording() ? new_id() : Variable::no_gradient}; }

void Tape::accumulate(int id, Tensor gradient) {
  if (id == Variable::no_gradient) return;
  Tensor& sum = gradients_[id];
  if (!sum.defined()) {
    sum = std::move(gradient);
    return;
  }
  require(sum.shape() == gradient.shape() && sum.dtype() == gradient.dtype(),
          "a variable received gradients that differ in type or shape: {} {} and {} {}", name_of(sum.dtype()),
          sum.shape(), name_of(gradient.dtype()), gradient.shape());
  // Sum::backward returns one tensor for both inputs, so a gradient that is shared must not be overwritten.
  Tensor result;
  if (sum.unique()) {
    result = sum;
  } else if (gradient.unique()) {
    result = gradient;
  } else {
    result = Tensor::empty(stream_, sum.dtype(), sum.shape());
  }
  dispatch_float(sum.dtype(), [&]<class T>() {
    launch(stream_, Add<T>{.a = sum.span<T>(), .b = gradient.span<T>(), .y = result.span<T>()});
  });
  sum = result;
}

Tensor Tape::take(int id) {
  const auto found = gradients_.find(id);
  if (found == gradients_.end()) return {};
  Tensor gradient = std::move(found->second);
  gradients_.erase(found);
  return gradient;
}

namespace {

/// Calls f for each unit with managed memory; once for consecutive parameters of the same unit.
template <class F>
void for_each_unit(const std::vector<Parameter*>& parameters, F&& f) {
  ParameterUnit* last = nullptr;
  for (const Parameter* parameter : parameters) {
    if (parameter->unit == last) continue;
    last = parameter->unit;
    if (last && last->memory()) f(*last);
  }
}

}  // namespace

void Tape::need_values(const std::vector<Parameter*>& parameters, UnitMemory::Pass pass) {
  for_each_unit(parameters, [pass](ParameterUnit& unit) { unit.memory()->need_values(unit, pass); });
}

std::vector<Parameter*> Tape::trained(std::vector<Parameter*> parameters) {
  std::erase_if(parameters, [](const Parameter* parameter) { return !parameter->trained(); });
  return parameters;
}

void Tape::need_gradients(const std::vector<Parameter*>& trained) {
  for_each_unit(trained, [](ParameterUnit& unit) { unit.memory()->need_gradients(unit); });
}

void Tape::clear_empty_gradients(const std::vector<Parameter*>& trained) const {
  for (Parameter* parameter : trained) parameter->clear_empty_gradient(stream_);
}

void Tape::contributed(Parameter& parameter) {
  if (--uses_.at(&parameter) == 0 && gradient_final_) gradient_final_(parameter);
}

Tape::Seed Tape::seed(const Variable& scalar, double scale) const {
  require(scalar.value.size() == 1, "backward cannot start from a tensor {}: it needs a scalar", scalar.value.shape());
  const Tensor gradient = Tensor::empty(stream_, scalar.value.dtype(), scalar.value.shape());
  dispatch_float(gradient.dtype(), [&]<class T>() {
    const T value = static_cast<T>(scale);
    copy_to_device(stream_, gradient.raw(), &value, sizeof value);
  });
  return {scalar, gradient};
}

void Tape::backward(const std::vector<Seed>& seeds, WeightGrad weight_grad) {
  require(recording(), "backward needs a tape that recorded its forward pass");
  for (const Seed& seed : seeds) accumulate(seed.root.id, seed.gradient);
  while (!nodes_.empty()) {
    std::unique_ptr<Node> node = std::move(nodes_.back());
    nodes_.pop_back();
    node->backward(*this);
    if (weight_grad == WeightGrad::later && node->may_delay()) {
      delayed_.push_back(std::move(node));
    } else {
      add_weight_grad(std::move(node));
    }
  }
  require_finished();
}

void Tape::weight_gradients() {
  for (auto& node : delayed_) add_weight_grad(std::move(node));
  delayed_.clear();
  require_finished();
}

void Tape::add_weight_grad(std::unique_ptr<Node> node) {
  node->weight_grad(*this);
  if (node->unfinished()) unfinished_.push_back(std::move(node));
}

void Tape::require_finished() const {
  require(unfinished_.empty(), "an operation with finish_weight_grad() needs finish_weight_grads_here() before it");
}

void Tape::finish_weight_grads() {
  for (auto& node : unfinished_) {
    node->finish(*this);
    node.reset();
  }
  unfinished_.clear();
}

/// The place of a call of finish_weight_grads_here(). As a weight gradient, it is delayed with those before it.
struct Tape::FinishNode final : Node {
  void backward(Tape&) override {}
  bool may_delay() const override { return true; }
  void weight_grad(Tape& tape) override { tape.finish_weight_grads(); }
};

void Tape::finish_weight_grads_here() {
  if (recording()) nodes_.push_back(std::make_unique<FinishNode>());
}

Tensor Tape::gradient(const Variable& variable) const {
  const auto found = gradients_.find(variable.id);
  return found == gradients_.end() ? Tensor{} : found->second;
}

struct Tape::RecomputeNode final : Node {
  void backward(Tape& tape) override {
    inner = std::make_unique<Tape>(tape.stream());
    inner->replaying_ = true;
    inner->on_gradient_final([&tape](Parameter& parameter) { tape.contributed(parameter); });
    const Variable x = inner->leaf(std::move(input));
    const std::vector<Variable> results = [&] {
      const ProfileScope timed(profile_of(tape.stream()), "block again");
      return block(*inner, x);
    }();
    require(results.size() == outputs.size(),
            "a recomputed block returned {} results in the forward pass and {} in the backward pass", outputs.size(),
            results.size());
    std::vector<Seed> seeds;
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      if (Tensor dy = tape.take(outputs[o]); dy.defined()) seeds.push_back({results[o], std::move(dy)});
    }
    inner->backward(seeds, WeightGrad::later);
    if (Tensor dx = inner->take(x.id); dx.defined()) tape.accumulate(input_id, std::move(dx));
  }

  bool may_delay() const override { return true; }
  void weight_grad(Tape&) override { inner->weight_gradients(); }

  Block block;
  Tensor input;
  int input_id = Variable::no_gradient;
  std::vector<int> outputs;
  std::unique_ptr<Tape> inner;
};

std::vector<Variable> Tape::recompute(Block block, const Variable& x) {
  Tape first(stream_, Mode::inference);
  std::vector<Variable> results = block(first, {x.value, Variable::no_gradient});
  // The block counts as one use of each of its parameters; the inner tape of the backward pass counts the uses within
  // it.
  for (const auto& [parameter, uses] : first.uses_) used(*parameter);
  if (!recording()) return results;
  auto node = std::make_unique<RecomputeNode>();
  node->block = std::move(block);
  node->input = x.value;
  node->input_id = x.id;
  for (Variable& result : results) node->outputs.push_back(result.id = new_id());
  nodes_.push_back(std::move(node));
  return results;
}

}  // namespace lyceum
