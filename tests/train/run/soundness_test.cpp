#include "train/run/soundness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "support/errors.h"
#include "train/run/run_state.h"

namespace lyceum {
namespace {

using testing::HasSubstr;

/// Returns the soundness after `steps` steps, in which the loss decreases from 6 towards 3.
Soundness after(int steps) {
  Soundness soundness;
  for (int step = 0; step < steps; ++step) soundness.add(3 + 3 * std::exp(-step / 30.0), 0.01, 1);
  return soundness;
}

TEST(Soundness, ARunThatLearnsIsSoundFromItsFirstStepOn) {
  EXPECT_EQ(Soundness().problem(), "");
  for (const int steps : {1, 2, 9, 10, 11, 300}) EXPECT_EQ(after(steps).problem(), "") << steps;
}

TEST(Soundness, OneOfTheLastStepsMayBeLeftOut) {
  Soundness soundness = after(300);
  soundness.add_skipped();
  EXPECT_EQ(soundness.problem(), "") << "a single skipped step is harmless";
  soundness.add_skipped();
  for (int step = 0; step < Soundness::window - 1; ++step) {
    EXPECT_THAT(soundness.problem(), HasSubstr("skipped")) << step;
    soundness.add(3, 0.01, 1);
  }
  EXPECT_EQ(soundness.problem(), "");
}

TEST(Soundness, AnUpdateAsLargeAsTheWeightsIsNone) {
  Soundness soundness = after(300);
  soundness.add(3, 1e25, 1e25);
  EXPECT_THAT(soundness.problem(), HasSubstr("its last update was 1 times its weights"));
  for (const double norm : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    soundness.add(3, norm, norm);
    EXPECT_NE(soundness.problem(), "");
  }
}

TEST(Soundness, ALossFarAboveItsLowestIsNot) {
  for (const double loss : {4.5, 1e25}) {
    Soundness soundness = after(300);
    for (int step = 0; step < 12; ++step) soundness.add(loss, 0.01, 1);
    EXPECT_THAT(soundness.problem(), HasSubstr("the smoothed loss was")) << loss;
    for (int step = 0; step < 40; ++step) soundness.add(3, 0.01, 1);
    EXPECT_EQ(soundness.problem(), "") << "it has recovered";
  }
  Soundness noisy = after(300);
  for (int step = 0; step < 1000; ++step) noisy.add(step % 2 ? 2.2 : 3.9, 0.01, 1);
  EXPECT_EQ(noisy.problem(), "");
  Soundness spike = after(300);
  spike.add(1e25, 0.01, 1);
  EXPECT_NE(spike.problem(), "") << "at once";
}

TEST(Soundness, TravelsWithACheckpoint) {
  RunState state, back;
  state.soundness = after(37);
  state.unwritten_routing = {{4, {{{1}, 1, 2, {3, 5}, {0.1f, 0.9f}, 0.5f}}},
                             {8, {{{1}, 1, 2, {4, 4}, {0.3f, 0.7f}, 0.25f}}}};
  const std::vector<RoutingSums> layers{{.id = {1}, .top_k = 1, .experts = 2, .counts = {0, 0}, .probability = {0, 0}}};
  back.restore(state.text(), layers);
  EXPECT_EQ(back.soundness.smoothed, state.soundness.smoothed);
  EXPECT_EQ(back.soundness.lowest, state.soundness.lowest);
  EXPECT_EQ(back.soundness.steps, 37);
  ASSERT_EQ(back.unwritten_routing.size(), 2u);
  EXPECT_EQ(back.unwritten_routing[1].step, 8);
  EXPECT_EQ(back.unwritten_routing[0].layers[0].mean_probability, (std::vector<float>{0.1f, 0.9f}));
  EXPECT_EQ(back.unwritten_routing[1].layers[0].mean_entropy, 0.25f);
  EXPECT_EQ(back.text(), state.text());
  EXPECT_THAT(error_of([&] { back.restore(state.text(), {}); }, ExitCode::bad_input), HasSubstr("different experts"));
}

/// Adds a step of a run of one rank.
void add_step_of_one_rank(RunState& state, const std::vector<RoutingSums>& sums, std::int64_t tokens) {
  state.add_load(sums);
  state.add_routing(sums, sums, tokens);
  add(state.routing, std::exchange(state.own_routing, {}));
}

/// If a checkpoint is saved and restored between two records of routing, the next record contains the mean and the
/// maximum over all steps, also those before the checkpoint.
TEST(RunState, HoldsTheBalanceOfSingleSteps) {
  const auto sums = [](std::vector<std::int64_t> counts) {
    return std::vector{
        RoutingSums{.id = {1}, .top_k = 1, .experts = 4, .counts = std::move(counts), .probability = {0, 0, 0, 0}}};
  };
  RunState whole, state, back;
  add_step_of_one_rank(whole, sums({8, 0, 0, 0}), 8);
  add_step_of_one_rank(state, sums({8, 0, 0, 0}), 8);
  back.restore(state.text(), sums({0, 0, 0, 0}));
  EXPECT_EQ(back.routing_steps, state.routing_steps);
  for (RunState* each : {&whole, &back}) {
    add_step_of_one_rank(*each, sums({0, 8, 0, 0}), 8);
    add_step_of_one_rank(*each, sums({0, 0, 4, 4}), 8);
  }
  EXPECT_EQ(back.text(), whole.text());
  const StepBalance balance = back.routing_steps.at(0).balance();
  EXPECT_FLOAT_EQ(balance.max_vio_mean, (3 + 3 + 1) / 3.0f);
  EXPECT_FLOAT_EQ(balance.max_vio_max, 3);
  EXPECT_FLOAT_EQ(balance.idle_mean, (3 + 3 + 2) / 3.0f);
  EXPECT_FLOAT_EQ(balance.idle_max, 3);
  // An older checkpoint does not contain the balance of single steps, so it is NaN in the next record.
  std::string old = state.text();
  for (const std::string key : {"steps", "step_max_vio_sum", "step_max_vio_max", "step_idle_sum", "step_idle_max"}) {
    const std::size_t begin = old.find(",\"" + key + "\":"), end = old.find_first_of(",}", begin + 1);
    ASSERT_NE(begin, std::string::npos) << key;
    old.erase(begin, end - begin);
  }
  back.restore(old, sums({0, 0, 0, 0}));
  add_step_of_one_rank(back, sums({0, 8, 0, 0}), 8);
  EXPECT_TRUE(std::isnan(back.routing_steps.at(0).balance().max_vio_mean));
  EXPECT_TRUE(std::isnan(back.routing_steps.at(0).balance().idle_max));
  back.clear_routing();
  add_step_of_one_rank(back, sums({2, 2, 2, 2}), 8);
  EXPECT_EQ(back.routing_steps.at(0).balance().max_vio_max, 0) << "the next record knows all of its steps";
}

TEST(RunState, TellsTheRoutersOfALayerApart) {
  const auto sums = [](Site site) {
    return RoutingSums{.id = {1, site}, .top_k = 1, .experts = 2, .counts = {3, 4}, .probability = {3, 4}};
  };
  const std::vector<RoutingSums> layers{sums(Site::attention), sums(Site::ffn)};
  RunState state, back;
  add_step_of_one_rank(state, layers, 7);
  add_step(state.idle, layers);
  state.placement = {{{1}, Placement::contiguous(2, 2)}};
  back.restore(state.text(), layers);
  EXPECT_EQ(back.routing.at(0).id, (MixtureId{1, Site::attention}));
  EXPECT_EQ(back.routing.at(1).id, (MixtureId{1, Site::ffn}));
  EXPECT_EQ(back.load, state.load);
  EXPECT_EQ(back.idle, state.idle);
  EXPECT_EQ(RunState::placement_of(state.text()).at(0).id, (MixtureId{1}));
  error_of([&] { back.restore(state.text(), {layers[1], layers[0]}); }, ExitCode::bad_input);
}

/// A run may continue with moe.capacity_factor from a checkpoint without it, and the other way round.
TEST(RunState, HoldsDroppedChoicesWhereExpertsHaveLimitedRoom) {
  const auto sums = [](std::vector<std::int64_t> dropped) {
    return std::vector{RoutingSums{
        .id = {1}, .top_k = 1, .experts = 2, .counts = {3, 4}, .probability = {3, 4}, .dropped = std::move(dropped)}};
  };
  const auto after_restoring = [&](const RunState& state, const std::vector<RoutingSums>& expected) {
    RunState back;
    back.restore(state.text(), expected);
    EXPECT_EQ(back.unwritten_routing.at(0).layers.at(0).dropped.size(), expected[0].dropped.size());
    add_step_of_one_rank(back, expected, 7);
    return back.routing.at(0).dropped;
  };
  using Dropped = std::vector<std::int64_t>;
  RunState limited, unlimited;
  add_step_of_one_rank(limited, sums({0, 2}), 7);
  limited.unwritten_routing = {{4, {{{1}, 1, 2, {3, 5}, {0.1f, 0.9f}, 0.5f, {0, 1}}}}};
  add_step_of_one_rank(unlimited, sums({}), 7);
  unlimited.unwritten_routing = {{4, {{{1}, 1, 2, {3, 5}, {0.1f, 0.9f}}}}};
  EXPECT_EQ(after_restoring(limited, sums({1, 1})), (Dropped{1, 3}));
  EXPECT_EQ(after_restoring(limited, sums({})), Dropped{});
  EXPECT_EQ(after_restoring(unlimited, sums({1, 1})), (Dropped{1, 1}));
  RunState back;
  back.restore(limited.text(), sums({0, 0}));
  EXPECT_EQ(back.unwritten_routing[0].layers[0].dropped, (Dropped{0, 1}));
  EXPECT_EQ(back.text(), limited.text());
}

TEST(RunState, RefusesWhatNoRunSaves) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = RunState().text();
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const char* value : {"-1", "9223372036854775807", "18446744073709551615", "1e300", "0.5", "null", "\"1\""}) {
    const std::string text = with("\"samples\":0", std::string("\"samples\":") + value);
    error_of([&] { RunState().restore(text, {}); }, ExitCode::bad_input);
  }
  for (const char* owners : {"[]", "[-1,0]", "[0,2]", "[2147483647]", "[1]"}) {
    const std::string text =
        with("\"placement\":[]", std::string("\"placement\":[{\"layer\":1,\"rank_of_expert\":") + owners + "}]");
    error_of([&] { RunState::placement_of(text); }, ExitCode::bad_input);
  }
}

}  // namespace
}  // namespace lyceum
