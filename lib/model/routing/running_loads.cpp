#include "model/routing/running_loads.h"

#include "core/error.h"
#include "kernels/elementwise.h"
#include "model/routing/balance_loss.h"

namespace lyceum {

namespace {

/// Returns the number of sums of a mixture's router, and of its sub-dimensions; 0 if no loss reads them.
std::int64_t router_sums(const BalanceConfig& balance, const Mixture& mixture) {
  if (!is_over_batch(balance) || !has_scores(mixture.router)) return 0;
  return (has_information_losses(balance) ? 2 : 1) * mixture.choices() + 1;
}
std::int64_t sub_dimension_sums(const BalanceConfig& balance, const Mixture& mixture) {
  const bool balanced = mixture.kind == Mixture::Kind::sub_dimensions && balance.sub_dimension > 0;
  return balanced ? mixture.choices() + 1 : 0;
}

}  // namespace

RunningLoads::RunningLoads(const Stream& stream, const Config& config, std::span<const Mixture> mixtures,
                           std::int64_t passes) {
  std::int64_t columns = 0;
  const auto place = [&](std::int64_t count) {
    const Range range{columns, count};
    columns += count;
    return range;
  };
  for (const Mixture& mixture : mixtures) {
    routers_[mixture.id] = place(router_sums(config.balance, mixture));
    sub_dimensions_[mixture.id] = place(sub_dimension_sums(config.balance, mixture));
  }
  sums_ = Tensor::zeros(stream, DType::f64, {passes, columns}, MemoryKind::buffers);
}

std::int64_t RunningLoads::bytes(const Config& config, std::span<const Mixture> mixtures, std::int64_t passes) {
  std::int64_t columns = 0;
  for (const Mixture& mixture : mixtures) {
    columns += router_sums(config.balance, mixture) + sub_dimension_sums(config.balance, mixture);
  }
  return passes * columns * std::int64_t{sizeof(double)};
}

RunningLoads::Sums RunningLoads::at(const MixtureId& id, Of of, std::int64_t pass) const {
  const std::map<MixtureId, Range>& places = of == Of::router ? routers_ : sub_dimensions_;
  const auto found = places.find(id);
  require(found != places.end() && pass >= 0 && pass < sums_.shape()[0], "no sums of loads of layer {} in pass {}",
          label_of(id), pass);
  const Range& columns = found->second;
  const auto row = [&](std::int64_t index) {
    return sums_.view(index * sums_.shape()[1] + columns.first, {columns.count});
  };
  return {.now = row(pass), .before = pass > 0 ? row(pass - 1) : Tensor()};
}

Tensor RunningLoads::Sums::add(const Stream& stream, const Tensor& own) const {
  launch(stream, Clear<double>{.y = now.span<double>()});
  for (const Tensor& part : {before, own}) {
    if (!part.defined()) continue;
    launch(stream, AddScaled<double, double>{.x = part.span<const double>(), .factor = 1, .y = now.span<double>()});
  }
  return now;
}

}  // namespace lyceum
