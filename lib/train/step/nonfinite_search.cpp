#include "train/step/nonfinite_search.h"

#include <fmt/format.h>

#include <cmath>

namespace lyceum {

namespace {

/// Keeps the output or gradient that is not finite and says most about the cause (Finding::add()).
class NonfiniteObserver final : public PassObserver {
 public:
  NonfiniteObserver(const Stream& stream, int layers) : stream_(stream), layers_(layers) {}

  void on_output(int stage, const Tensor& y) override {
    if (all_finite(stream_, y, {0, y.size()})) return;
    found.add({Finding::Kind::output, stage, fmt::format("the output of pipeline stage {}", stage)});
  }
  void on_gradient(const Parameter& parameter) override {
    const Tensor& gradient = parameter.gradient;
    if (all_finite(stream_, gradient, {0, gradient.size()})) return;
    found.add({Finding::Kind::gradient, layers_ - parameter.unit->layer(), "the gradient of " + parameter.name});
  }

  Finding found;

 private:
  const Stream& stream_;
  int layers_;
};

/// Returns the name of the last parameter, in forward order, whose part of `flat` is not finite, or an empty text.
/// `flat`: values or gradients of a share. The last one is nearest to the loss, from where backward spreads NaN.
std::string nonfinite_parameter(const Stream& stream, std::span<const UnitShare> shares, Tensor UnitShare::*flat) {
  for (auto share = shares.rbegin(); share != shares.rend(); ++share) {
    for (std::size_t p = 0; p < share->unit->parameters().size(); ++p) {
      const Parameter& parameter = *share->unit->parameters()[p];
      const Range part = common({share->unit->first_of(p), parameter.shape.size()}, share->updated);
      if (!all_finite(stream, (*share).*flat, {part.first - share->updated.first, part.count})) return parameter.name;
    }
  }
  return {};
}

/// Returns the weight, or else the summed gradient, in this rank's shares that is not finite; kind `none` if all are.
Finding nonfinite_share(const Optimizer& optimizer) {
  const auto search = [&](std::span<const UnitShare> shares, Tensor UnitShare::*flat) {
    return nonfinite_parameter(optimizer.stream(), shares, flat);
  };
  std::string weight = search(optimizer.shares(), &UnitShare::values);
  if (weight.empty()) weight = search(optimizer.untrained(), &UnitShare::values);
  if (!weight.empty()) return {Finding::Kind::weight, 0, "the weight " + weight};
  const std::string gradient = search(optimizer.shares(), &UnitShare::gradients);
  if (!gradient.empty()) return {Finding::Kind::sum, 0, "the gradient of " + gradient};
  return {};
}

}  // namespace

std::string find_nonfinite(const ProcessGroup& world, StepPasses& passes, const Optimizer& optimizer,
                           const StepNumbers::Values& values, int layers) {
  using Kind = Finding::Kind;
  Finding own = nonfinite_share(optimizer);
  if (!std::isfinite(values.own_gradient_norm)) own.add({Kind::norm, 0, "the gradient norm"});
  if (!std::isfinite(values.own_cross_entropy)) own.add({Kind::loss, 0, "the loss of its tokens"});
  const Finding first = agree(world, own);
  if (world.size() == 1 || first.kind == Kind::weight) return first.what;

  NonfiniteObserver observer(optimizer.stream(), layers);
  passes.run(&observer);
  optimizer.clear_frozen_gradients();
  observer.found.add(nonfinite_share(optimizer));
  const Finding second = agree(world, observer.found);
  if (second.kind == Kind::none) {
    return first.what + " (finite when the step was computed again: possible memory or network fault)";
  }
  return second.kind > first.kind ? second.what : first.what;
}

}  // namespace lyceum
