#include "parallel/pipeline/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "parallel/pipeline/check.h"
#include "parallel/pipeline/schedule_text.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/pipeline/transfers.h"
#include "support/schedules.h"

namespace lyceum {
namespace {

using Kind = Action::Kind;
using testing::HasSubstr;

TEST(Schedule, GPipe) {
  EXPECT_EQ(text(gpipe({.ranks = 2, .microbatches = 3})),
            "rank 0: F0 F1 F2 B0 B1 B2\n"
            "rank 1: F0 F1 F2 B0 B1 B2\n");
}

TEST(Schedule, OneForwardOneBackward) {  // figure 4 of Narayanan et al. 2021
  EXPECT_EQ(text(one_forward_one_backward({.ranks = 4, .microbatches = 8})),
            "rank 0: F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7\n"
            "rank 1: F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7\n"
            "rank 2: F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7\n"
            "rank 3: F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7\n");
}

TEST(Schedule, Interleaved) {
  EXPECT_EQ(text(interleaved({.ranks = 2, .virtual_stages = 2, .microbatches = 4})),
            "rank 0: 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3\n"
            "rank 1: 1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3\n");
}

TEST(Schedule, ZeroBubble) {
  EXPECT_EQ(text(zero_bubble({.ranks = 3, .microbatches = 4})),
            "rank 0: F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3\n"
            "rank 1: F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3\n"
            "rank 2: F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3\n");
}

TEST(Schedule, FewerMicrobatchesThanRanks) {
  EXPECT_EQ(text(one_forward_one_backward({.ranks = 3, .microbatches = 1})),
            "rank 0: F0 B0\nrank 1: F0 B0\nrank 2: F0 B0\n");
  EXPECT_EQ(text(zero_bubble({.ranks = 3, .microbatches = 1})),
            "rank 0: F0 I0 W0\nrank 1: F0 I0 W0\nrank 2: F0 I0 W0\n");
}

TEST(Schedule, ForwardOnly) {
  EXPECT_EQ(text(forward_only({.ranks = 2, .microbatches = 3})), "rank 0: F0 F1 F2\nrank 1: F0 F1 F2\n");
  EXPECT_EQ(text(forward_only({.ranks = 2, .virtual_stages = 2, .microbatches = 3})),
            "rank 0: 0F0 0F1 0F2 2F0 2F1 2F2\nrank 1: 1F0 1F1 1F2 3F0 3F1 3F2\n");
  for (const int ranks : {1, 2, 3, 8}) {
    for (const int microbatches : {1, 3, 8}) {
      const PipelineShape shape{.ranks = ranks, .virtual_stages = 3, .microbatches = microbatches};
      check_schedule(with_transfers(forward_only(shape)));
    }
  }
  EXPECT_THROW(forward_only({.ranks = 2, .microbatches = 0}), Error);
}

TEST(Schedule, KindsAndRefusals) {
  const PipelineShape plain{.ranks = 4, .microbatches = 8}, deep{.ranks = 4, .virtual_stages = 2, .microbatches = 8};
  EXPECT_EQ(text(make_schedule(ScheduleKind::gpipe, plain)), text(gpipe(plain)));
  EXPECT_EQ(text(make_schedule(ScheduleKind::one_forward_one_backward, plain)), text(one_forward_one_backward(plain)));
  EXPECT_EQ(text(make_schedule(ScheduleKind::interleaved, deep)), text(interleaved(deep)));
  EXPECT_EQ(text(make_schedule(ScheduleKind::zero_bubble, plain)), text(zero_bubble(plain)));

  const auto expect_usage_error = [](ScheduleKind kind, const PipelineShape& shape, const char* part) {
    try {
      (void)make_schedule(kind, shape);
      FAIL() << "no error that says " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  };
  expect_usage_error(ScheduleKind::interleaved, {.ranks = 4, .virtual_stages = 2, .microbatches = 6},
                     "does not divide 6");
  expect_usage_error(ScheduleKind::interleaved, plain, "virtual_stages is 1");
  expect_usage_error(ScheduleKind::one_forward_one_backward, deep, "virtual_stages is 2");
  expect_usage_error(ScheduleKind::gpipe, {.ranks = 2, .microbatches = 0}, "0 micro-batches");
}

TEST(Transfers, AreReceivedAheadAndSentAtOnce) {
  EXPECT_EQ(text(with_transfers(one_forward_one_backward({.ranks = 2, .microbatches = 3}))),
            "rank 0: F0 SF0 RB0 F1 SF1 B0 RB1 F2 SF2 RB2 B1 B2\n"
            "rank 1: RF0 F0 RF1 B0 SB0 F1 RF2 B1 SB1 F2 B2 SB2\n");
}

TEST(Transfers, NoneWithinARank) {
  const Schedule one = interleaved({.ranks = 1, .virtual_stages = 3, .microbatches = 2});
  EXPECT_EQ(with_transfers(one).programs, one.programs);
}

/// Rank 0 has two stages and sends activations of stages 0 and 2 and gradients of stage 2 to the same neighbour.
TEST(Transfers, KeepTheOrderOfSends) {
  const Schedule schedule = with_transfers(interleaved({.ranks = 2, .virtual_stages = 2, .microbatches = 4}));
  std::vector<std::string> sent, received;
  for (const Action& action : schedule.programs[0]) {
    if (action.kind == Kind::send_activation || action.kind == Kind::send_gradient) {
      const Handover moved = moved_by(action);
      sent.push_back((moved.gradient ? "gradient " : "activation ") + std::to_string(moved.to) + " " +
                     std::to_string(moved.microbatch));
    }
  }
  for (const Action& action : schedule.programs[1]) {
    if (action.kind == Kind::receive_activation || action.kind == Kind::receive_gradient) {
      const Handover moved = moved_by(action);
      received.push_back((moved.gradient ? "gradient " : "activation ") + std::to_string(moved.to) + " " +
                         std::to_string(moved.microbatch));
    }
  }
  EXPECT_EQ(sent.size(), 12U);
  EXPECT_EQ(sent, received);
}

TEST(Check, PassesEveryScheduleOfManyShapes) {
  int count = 0;
  for_each_schedule([&](ScheduleKind kind, const Schedule& schedule) {
    SCOPED_TRACE(name_of(kind));
    const PipelineShape& shape = schedule.shape;
    const int p = shape.ranks, m = shape.microbatches, v = shape.virtual_stages;
    const int most = kind == ScheduleKind::gpipe         ? m
                     : kind == ScheduleKind::interleaved ? std::min(2 * (p - 1) + (v - 1) * p + 1, m * v)
                                                         : std::min(p, m);
    check_schedule(schedule, most);
    check_schedule(with_transfers(schedule), most);
    ++count;
  });
  EXPECT_EQ(count, 7 * (3 * 10 + 3 * 4));
}

}  // namespace
}  // namespace lyceum
