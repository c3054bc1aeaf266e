#include "model/routing/balance_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "autograd/routing.h"
#include "kernels/router.h"
#include "support/op_check.h"

namespace lyceum {
namespace {

using Inputs = std::vector<Variable>;

/// Applies Route and the losses. The steps of finite differences are too small to change a choice, so the counts are
/// constant.
OpCase balance_case(const std::string& name, const BalanceConfig& weights, const Placement& devices,
                    const ProcessGroup* batch = nullptr, Scores scores = Scores::softmax) {
  const std::int64_t experts = 5, seq_len = 4, k = 2;
  return {
      .name = name,
      .inputs = {{2 * seq_len, experts}},
      .run = [=](Tape& tape, const Inputs& x, const ParameterUnit&) -> Inputs {
        const Route route{
            .k = k, .scores = scores, .entropy = has_information_losses(weights), .sequences = 2, .seq_len = seq_len};
        const auto [gates, index, load] = tape.apply(route, x[0]);
        const BalanceLoss balance{.expert_factor = weights.expert,
                                  .device_factor = weights.device,
                                  .z_factor = weights.z_loss,
                                  .information_factor = weights.mutual_information,
                                  .concentration_factor = weights.concentration,
                                  .devices = &devices,
                                  .top_k = k,
                                  .seq_len = seq_len,
                                  .batch = batch};
        const auto [by_expert, by_device, squares, information, concentration] = tape.apply(balance, load);
        return {gates, by_expert, by_device, squares, information, concentration};
      }};
}

TEST(BalanceLoss, GradientsAreThoseOfFiniteDifferences) {
  const Placement two = Placement::contiguous(5, 2);
  check_op(balance_case("ExpertAndDevice", {.expert = 0.7, .device = 1.3, .z_loss = 0.3}, two));
  check_op(balance_case("ExpertAlone", {.expert = 0.7}, Placement::contiguous(5, 5)));
  check_op(balance_case("DeviceAlone", {.device = 2}, Placement::contiguous(5, 3)));
  check_op(balance_case("SquaresAlone", {.z_loss = 0.3}, Placement::contiguous(5, 1)));
  check_op(balance_case("ScatteredDevices", {.expert = 0.7, .device = 2}, Placement::of_owners({1, 0, 1, 1, 0}, 2)));
  const ProcessGroup self = ProcessGroup::self();
  check_op(balance_case("Batch", {.expert = 0.7, .device = 2, .z_loss = 0.3}, two, &self));
  check_op(balance_case("InformationAlone", {.mutual_information = 0.8}, two));
  check_op(balance_case("ConcentrationAlone", {.concentration = 0.8}, two));
  const BalanceConfig all{.expert = 0.7, .z_loss = 0.3, .mutual_information = 0.8, .concentration = 0.3};
  for (const ProcessGroup* batch : {static_cast<const ProcessGroup*>(nullptr), &self}) {
    for (const Scores scores : {Scores::softmax, Scores::sigmoid}) {
      check_op(balance_case(batch ? "AllOfABatch" : "All", all, two, batch, scores));
    }
  }
}

/// H(P) and the mean of H(p) were computed by hand for two tokens that are sure of different experts, and for two that
/// are not.
TEST(BalanceLoss, InformationIsHighWhereSureTokensDiffer) {
  const Stream stream = CpuStream(1);
  const Placement one = Placement::contiguous(2, 1);
  const BalanceLoss loss{.information_factor = 3, .concentration_factor = 5, .devices = &one, .top_k = 1, .seq_len = 2};
  BalanceLoss::Saved saved;
  const auto losses = [&](double mean, double entropies) {
    const Tensor load =
        tensor_of(stream, {1, load_width(2)}, std::vector<double>{1, 1, 2 * mean, 2 - 2 * mean, 0, entropies});
    const auto [expert, device, z, information, concentration] = loss.forward(stream, saved, load);
    EXPECT_EQ(*expert.data<double>(), 0);
    return std::pair(*information.data<double>(), *concentration.data<double>());
  };
  const double most = std::log(2.0);
  const auto [apart, spread] = losses(0.5, 0);
  EXPECT_NEAR(apart, -3 * most, 1e-15);
  EXPECT_NEAR(spread, 5 * most, 1e-15);
  const auto [unsure, as_spread] = losses(0.5, 2 * most);
  EXPECT_NEAR(unsure, 0, 1e-15);
  EXPECT_NEAR(as_spread, 5 * most, 1e-15);
  const auto [alike, narrow] = losses(1, 0);  // both tokens choose the first expert
  EXPECT_EQ(alike, 0);
  EXPECT_EQ(narrow, 0);
}

/// Returns the load of one sequence, made from counts, mean scores and the sum of squares.
Tensor load_of(const Stream& stream, std::int64_t tokens, std::vector<double> counts,
               const std::vector<double>& mean_scores, double squares) {
  const auto experts = std::ssize(counts);
  for (const double mean : mean_scores) counts.push_back(mean * static_cast<double>(tokens));
  counts.push_back(squares);
  counts.push_back(0);  // entropies, which these losses do not read
  return tensor_of(stream, {1, load_width(experts)}, counts);
}

/// DeepSeekMoE eq. 12–17, computed by hand for one sequence of two tokens, and four experts in two groups.
TEST(BalanceLoss, FollowsThePapersFormula) {
  const Stream stream = CpuStream(1);
  const Tensor load = load_of(stream, 2, {1, 2, 0, 1}, {0.25, 0.4, 0.175, 0.175}, 7);
  const Placement devices = Placement::contiguous(4, 2);
  BalanceLoss loss{
      .expert_factor = 0.01, .device_factor = 0.05, .z_factor = 0.3, .devices = &devices, .top_k = 2, .seq_len = 2};
  BalanceLoss::Saved saved;
  const auto [expert, device, z, information, concentration] = loss.forward(stream, saved, load);
  // f = 4/(2·2) · counts; P = mean scores
  EXPECT_NEAR(*expert.data<double>(), 0.01 * (1 * 0.25 + 2 * 0.4 + 0 + 1 * 0.175), 1e-15);
  // f' = (1.5, 0.5), P' = (0.65, 0.35)
  EXPECT_NEAR(*device.data<double>(), 0.05 * (1.5 * 0.65 + 0.5 * 0.35), 1e-15);
  EXPECT_NEAR(*z.data<double>(), 0.3 * 7 / 2, 1e-15);
  EXPECT_EQ(*information.data<double>(), 0);
  EXPECT_EQ(*concentration.data<double>(), 0);
  // Expert 1 is alone on a device, the others are on another: f' = (2, 2/3), P' = (0.4, 0.6)
  const Placement scattered = Placement::of_owners({1, 0, 1, 1}, 2);
  loss.devices = &scattered;
  EXPECT_NEAR(*loss.forward(stream, saved, load)[1].data<double>(), 0.05 * (2 * 0.4 + 2.0 / 3 * 0.6), 1e-15);
}

TEST(BalanceLoss, IsOneWhenBalanced) {
  const Stream stream = CpuStream(1);
  const Placement one = Placement::contiguous(4, 1);
  BalanceLoss::Saved saved;
  const BalanceLoss loss{.expert_factor = 1, .devices = &one, .top_k = 1, .seq_len = 4};
  const Tensor load = load_of(stream, 4, {1, 1, 1, 1}, {0.25, 0.25, 0.25, 0.25}, 0);
  EXPECT_NEAR(*loss.forward(stream, saved, load)[0].data<double>(), 1.0, 1e-15);
}

}  // namespace
}  // namespace lyceum
