#include "parallel/pipeline/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/pipeline/transfers.h"
#include "support/schedules.h"

namespace lyceum {
namespace {

using Kind = Action::Kind;

Timeline run(const Schedule& schedule, const StageCosts& costs, double transfer = 0) {
  return simulate(schedule, equal_costs(schedule.shape, costs, transfer));
}

// Costs are sums of powers of two, so that times are exact.
const StageCosts equal{.forward = 1, .backward_input = 1, .backward_weight = 1};
const StageCosts uneven{.forward = 1, .backward_input = 1.25, .backward_weight = 0.75};

TEST(Timeline, BubblesAreThoseOfTheLiterature) {
  for_each_schedule([](ScheduleKind kind, const Schedule& schedule) {
    const int p = schedule.shape.ranks, v = schedule.shape.virtual_stages, m = schedule.shape.microbatches;
    SCOPED_TRACE(name_of(kind) + " " + std::to_string(p) + " " + std::to_string(v) + " " + std::to_string(m));
    for (const StageCosts& costs : {equal, uneven}) {
      const Timeline timeline = run(schedule, costs);
      const double whole = costs.forward + costs.backward_input + costs.backward_weight;
      const double idle = timeline.makespan() - m * v * whole;
      if (kind == ScheduleKind::zero_bubble) {
        if (m >= p) {
          EXPECT_EQ(idle, (p - 1) * (costs.forward + costs.backward_input - costs.backward_weight));
        }
        EXPECT_LE(timeline.makespan(), run(one_forward_one_backward(schedule.shape), costs).makespan());
        if (p > 1) {
          EXPECT_LT(timeline.bubble_fraction(), run(one_forward_one_backward(schedule.shape), costs).bubble_fraction());
        }
      } else {
        EXPECT_EQ(idle, (p - 1) * whole);  // interleaved: `whole` is the cost of one stage, 1/v of the work of a rank
        EXPECT_DOUBLE_EQ(timeline.bubble_ratio(), (p - 1.0) / (v * m));
        EXPECT_DOUBLE_EQ(timeline.bubble_fraction(), (p - 1.0) / (v * m + p - 1.0));
      }
      for (int rank = 0; rank < p; ++rank) {
        EXPECT_EQ(timeline.busy(rank), m * v * whole);
        EXPECT_EQ(timeline.bubble_fraction(rank), idle / timeline.makespan());
      }
    }
  });
}

TEST(Timeline, SendsAndReceivesChangeNothing) {
  for_each_schedule([](ScheduleKind, const Schedule& schedule) {
    const Schedule full = with_transfers(schedule);
    EXPECT_EQ(run(full, uneven, 0.5).makespan(), run(schedule, uneven, 0.5).makespan());
  });
}

TEST(Timeline, UnevenStagesAndSlowLinksByHand) {
  const Costs costs{.stages = {{1, 1, 1}, {2, 2, 2}}, .transfer = 0.5};
  const Timeline timeline = simulate(one_forward_one_backward({.ranks = 2, .microbatches = 2}), costs);
  const std::vector<std::vector<std::pair<double, double>>> expected{{{0, 1}, {1, 2}, {8, 10}, {14, 16}},
                                                                     {{1.5, 3.5}, {3.5, 7.5}, {7.5, 9.5}, {9.5, 13.5}}};
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(timeline.ranks[rank][i].start, expected[rank][i].first) << rank << " " << i;
      EXPECT_EQ(timeline.ranks[rank][i].end, expected[rank][i].second) << rank << " " << i;
    }
  }
  EXPECT_EQ(timeline.makespan(), 16);
  EXPECT_EQ(timeline.busy(0), 6);
  EXPECT_EQ(timeline.bubble_fraction(0), 10.0 / 16);
  EXPECT_EQ(timeline.bubble_ratio(), 14.0 / 18);
}

TEST(Timeline, StagesOfOneRankPassByMemory) {
  const Schedule schedule = interleaved({.ranks = 1, .virtual_stages = 2, .microbatches = 3});
  EXPECT_EQ(run(schedule, equal, 100).makespan(), 18);
}

TEST(Timeline, CountsOfOtherStagesAreRefused) {
  EXPECT_THROW(simulate(gpipe({.ranks = 2, .microbatches = 1}), {.stages = {{}}}), Error);
}

std::string stuck(const Schedule& schedule) {
  try {
    (void)run(schedule, equal);
    return "it ran";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Timeline, DeadlocksAreNamed) {
  Schedule schedule = one_forward_one_backward({.ranks = 2, .microbatches = 2});
  std::swap(schedule.programs[0][1], schedule.programs[0][2]);  // F0 B0 F1 B1 is valid,
  EXPECT_EQ(stuck(schedule), "it ran");
  std::swap(schedule.programs[1][0], schedule.programs[1][2]);  // but not together with F1 B0 F0 B1.
  EXPECT_EQ(stuck(schedule),
            "rank 0 is stuck at B0: it waits for stage 1, rank 1, which is stuck at F1\n"
            "rank 0:  F0 [B0] F1  B1\n"
            "rank 1:  F1  B0  F0  B1");

  schedule = gpipe({.ranks = 2, .microbatches = 1});
  std::swap(schedule.programs[1][0], schedule.programs[1][1]);
  EXPECT_THAT(stuck(schedule), testing::StartsWith("rank 0 is stuck at B0: it waits for stage 1, rank 1, which "
                                                   "is stuck at B0\n"));
  schedule.programs[1].clear();
  EXPECT_THAT(stuck(schedule), testing::StartsWith("rank 0 is stuck at B0: it waits for stage 1, rank 1, which "
                                                   "has finished\n"));
  schedule = zero_bubble({.ranks = 1, .microbatches = 1});
  std::swap(schedule.programs[0][1], schedule.programs[0][2]);
  EXPECT_THAT(stuck(schedule), testing::StartsWith("rank 0 is stuck at W0: its own I has not run\n"));
}

TEST(Timeline, AMissingSendIsADeadlock) {
  Schedule schedule = with_transfers(gpipe({.ranks = 2, .microbatches = 1}));
  std::erase_if(schedule.programs[0], [](const Action& a) { return a.kind == Kind::send_activation; });
  EXPECT_THAT(stuck(schedule), testing::StartsWith("rank 0 is stuck at B0"));
  EXPECT_THAT(stuck(schedule), testing::HasSubstr("rank 1, which is stuck at F0"));
}

TEST(PeakActivations, OfEverySchedule) {
  const int p = 4, m = 8;
  for (int rank = 0; rank < p; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    EXPECT_EQ(peak_in_flight(gpipe({p, 1, m}).programs[r]), m);
    EXPECT_EQ(peak_in_flight(one_forward_one_backward({p, 1, m}).programs[r]), p - rank);
    EXPECT_EQ(peak_in_flight(zero_bubble({p, 1, m}).programs[r]), p);
    EXPECT_EQ(peak_in_flight(interleaved({p, 2, m}).programs[r]), 2 * (p - rank - 1) + p + 1);
  }
}

TEST(PeakActivations, InBytesOfEachStage) {
  // Rank 1 of ZB-H1: F0 I0 F1 I1 W0 W1.
  const Schedule schedule = zero_bubble({.ranks = 2, .microbatches = 2});
  const std::vector<SavedActivations> stages{{100, 100}, {10, 4}};
  EXPECT_EQ(peak_activations(schedule.programs[1], stages), 14);
  EXPECT_EQ(peak_activations(schedule.programs[0], stages), 200);
  EXPECT_EQ(peak_activations({}, stages), 0);
}

TEST(TextGrid, OneForwardOneBackward) {
  EXPECT_EQ(text_grid(run(one_forward_one_backward({.ranks = 2, .microbatches = 3}), equal)),
            "row 0 | F0 F1  .  . B0 -- F2 B1 --  . B2 --\n"
            "row 1 |  . F0 B0 -- F1 B1 -- F2 B2 --  .  .\n");
}

TEST(TextGrid, ZeroBubbleAndUnits) {
  const Timeline timeline = run(zero_bubble({.ranks = 2, .microbatches = 2}), equal);
  EXPECT_EQ(text_grid(timeline),
            "row 0 | F0 F1  . I0 W0 I1 W1\n"
            "row 1 |  . F0 I0 F1 I1 W0 W1\n");
  EXPECT_EQ(text_grid(timeline, 0.5).substr(0, 23), "row 0 | F0 -- F1 --  . ");
  EXPECT_THROW(text_grid(timeline, 1e-9), Error);
  EXPECT_EQ(text_grid(run(interleaved({.ranks = 1, .virtual_stages = 2, .microbatches = 1}), equal)),
            "row 0 | 0F0 1F0 1B0 --- 0B0 ---\n");
}

}  // namespace
}  // namespace lyceum
