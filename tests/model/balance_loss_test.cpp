#include "model/balance_loss.h"

#include <gtest/gtest.h>

#include "autograd/routing.h"
#include "support/op_check.h"

namespace lyceum {
namespace {

using Inputs = std::vector<Variable>;

OpCase balance_case(const std::string& name, double expert, double device, const Placement& devices) {
  const std::int64_t experts = 5, seq_len = 4, k = 2;
  return {.name = name,
          .inputs = {{2 * seq_len, experts}},
          .run = [=](Tape& tape, const Inputs& x, const ParameterUnit&) -> Inputs {
            const Variable scores = tape.apply(Softmax{}, x[0]);
            // Fixed choices: the derivative of the counts is not part of the loss.
            const Tensor index =
                i32_tensor(tape.stream(), {2 * seq_len, k}, {0, 1, 0, 2, 3, 0, 0, 4, 1, 2, 1, 2, 2, 1, 4, 3});
            const auto [by_expert, by_device] = tape.apply(BalanceLoss{.expert_factor = expert,
                                                                       .device_factor = device,
                                                                       .devices = &devices,
                                                                       .layout = {2 * seq_len, seq_len},
                                                                       .index = index},
                                                           scores);
            return {by_expert, by_device};
          }};
}

TEST(BalanceLoss, GradientsAreThoseOfFiniteDifferences) {
  check_op(balance_case("ExpertAndDevice", 0.7, 1.3, Placement::contiguous(5, 2)));
  check_op(balance_case("ExpertAlone", 0.7, 0, Placement::contiguous(5, 5)));
  check_op(balance_case("DeviceAlone", 0, 2, Placement::contiguous(5, 3)));
  check_op(balance_case("ScatteredDevices", 0.7, 2, Placement::of_owners({1, 0, 1, 1, 0}, 2)));
}

TEST(ZLoss, GradientIsThatOfFiniteDifferences) {
  check_op(
      {.name = "ZLoss", .inputs = {{6, 5}}, .run = [](Tape& tape, const Inputs& x, const ParameterUnit&) -> Inputs {
         return {tape.apply(ZLoss{.factor = 0.3, .layout = {6, 3}}, x[0])};
       }});
}

/// DeepSeekMoE eq. 12–17 worked by hand for one sequence of two tokens over four experts in two groups.
TEST(BalanceLoss, FollowsThePapersFormula) {
  const Stream stream = CpuStream(1);
  const Tensor scores = Tensor::empty(stream, DType::f64, {2, 4});
  const double s[] = {0.4, 0.3, 0.2, 0.1, 0.1, 0.5, 0.15, 0.25};
  std::copy(std::begin(s), std::end(s), scores.data<double>());
  const Placement devices = Placement::contiguous(4, 2);
  BalanceLoss loss{.expert_factor = 0.01,
                   .device_factor = 0.05,
                   .devices = &devices,
                   .layout = {2, 2},
                   .index = i32_tensor(stream, {2, 2}, {0, 1, 1, 3})};
  BalanceLoss::Saved saved;
  const auto [expert, device] = loss.forward(stream, saved, scores);
  // f = 4/(2·2) · counts (1, 2, 0, 1); P = (0.25, 0.4, 0.175, 0.175)
  EXPECT_NEAR(*expert.data<double>(), 0.01 * (1 * 0.25 + 2 * 0.4 + 0 + 1 * 0.175), 1e-15);
  // f' = (1.5, 0.5), P' = (0.65, 0.35)
  EXPECT_NEAR(*device.data<double>(), 0.05 * (1.5 * 0.65 + 0.5 * 0.35), 1e-15);
  // Expert 1 alone on a device, the others on another: f' = (2, 2/3), P' = (0.4, 0.6)
  const Placement scattered = Placement::of_owners({1, 0, 1, 1}, 2);
  loss.devices = &scattered;
  EXPECT_NEAR(*loss.forward(stream, saved, scores)[1].data<double>(), 0.05 * (2 * 0.4 + 2.0 / 3 * 0.6), 1e-15);
}

TEST(BalanceLoss, IsSmallestWhenBalanced) {
  const Stream stream = CpuStream(1);
  const Tensor scores = Tensor::empty(stream, DType::f64, {4, 4});
  std::fill_n(scores.data<double>(), 16, 0.25);
  const Placement one = Placement::contiguous(4, 1);
  const auto value = [&](const std::vector<std::int32_t>& index) {
    BalanceLoss::Saved saved;
    const BalanceLoss loss{.expert_factor = 1,
                           .device_factor = 0,
                           .devices = &one,
                           .layout = {4, 4},
                           .index = i32_tensor(stream, {4, 1}, index)};
    return *loss.forward(stream, saved, scores)[0].data<double>();
  };
  EXPECT_NEAR(value({0, 1, 2, 3}), 1.0, 1e-15);
}

}  // namespace
}  // namespace lyceum
