#include "model/balance_loss.h"

#include <gtest/gtest.h>

#include "autograd/routing.h"
#include "kernels/router.h"
#include "support/op_check.h"

namespace lyceum {
namespace {

using Inputs = std::vector<Variable>;

/// Route and its losses: choices change with no step of finite differences, so their counts are constant.
OpCase balance_case(const std::string& name, double expert, double device, double z, const Placement& devices,
                    const ProcessGroup* batch = nullptr) {
  const std::int64_t experts = 5, seq_len = 4, k = 2;
  return {.name = name,
          .inputs = {{2 * seq_len, experts}},
          .run = [=](Tape& tape, const Inputs& x, const ParameterUnit&) -> Inputs {
            const Route route{.k = k, .sequences = 2, .seq_len = seq_len};
            const auto [gates, index, load] = tape.apply(route, x[0]);
            const auto [by_expert, by_device, squares] = tape.apply(BalanceLoss{.expert_factor = expert,
                                                                                .device_factor = device,
                                                                                .z_factor = z,
                                                                                .devices = &devices,
                                                                                .top_k = k,
                                                                                .seq_len = seq_len,
                                                                                .batch = batch},
                                                                    load);
            return {gates, by_expert, by_device, squares};
          }};
}

TEST(BalanceLoss, GradientsAreThoseOfFiniteDifferences) {
  check_op(balance_case("ExpertAndDevice", 0.7, 1.3, 0.3, Placement::contiguous(5, 2)));
  check_op(balance_case("ExpertAlone", 0.7, 0, 0, Placement::contiguous(5, 5)));
  check_op(balance_case("DeviceAlone", 0, 2, 0, Placement::contiguous(5, 3)));
  check_op(balance_case("SquaresAlone", 0, 0, 0.3, Placement::contiguous(5, 1)));
  check_op(balance_case("ScatteredDevices", 0.7, 2, 0, Placement::of_owners({1, 0, 1, 1, 0}, 2)));
  const ProcessGroup self = ProcessGroup::self();
  check_op(balance_case("Batch", 0.7, 2, 0.3, Placement::contiguous(5, 2), &self));
}

/// The load of one sequence from counts, mean scores and the sum of squares.
Tensor load_of(const Stream& stream, std::int64_t tokens, std::vector<double> counts,
               const std::vector<double>& mean_scores, double squares) {
  const auto experts = std::ssize(counts);
  for (const double mean : mean_scores) counts.push_back(mean * static_cast<double>(tokens));
  counts.push_back(squares);
  return tensor_of(stream, {1, load_width(experts)}, counts);
}

/// DeepSeekMoE eq. 12–17 worked by hand for one sequence of two tokens over four experts in two groups.
TEST(BalanceLoss, FollowsThePapersFormula) {
  const Stream stream = CpuStream(1);
  const Tensor load = load_of(stream, 2, {1, 2, 0, 1}, {0.25, 0.4, 0.175, 0.175}, 7);
  const Placement devices = Placement::contiguous(4, 2);
  BalanceLoss loss{
      .expert_factor = 0.01, .device_factor = 0.05, .z_factor = 0.3, .devices = &devices, .top_k = 2, .seq_len = 2};
  BalanceLoss::Saved saved;
  const auto [expert, device, z] = loss.forward(stream, saved, load);
  // f = 4/(2·2) · counts; P the mean scores
  EXPECT_NEAR(*expert.data<double>(), 0.01 * (1 * 0.25 + 2 * 0.4 + 0 + 1 * 0.175), 1e-15);
  // f' = (1.5, 0.5), P' = (0.65, 0.35)
  EXPECT_NEAR(*device.data<double>(), 0.05 * (1.5 * 0.65 + 0.5 * 0.35), 1e-15);
  EXPECT_NEAR(*z.data<double>(), 0.3 * 7 / 2, 1e-15);
  // Expert 1 alone on a device, the others on another: f' = (2, 2/3), P' = (0.4, 0.6)
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
