#include "parallel/pipeline/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "parallel/pipeline/transfers.h"

namespace lyceum {
namespace {

using Kind = Action::Kind;
using testing::HasSubstr;
using testing::StartsWith;

std::string fault(const Schedule& schedule, int most_in_flight = 0) {
  try {
    check_schedule(schedule, most_in_flight);
    return "none";
  } catch (const Error& error) {
    return error.what();
  }
}

/// 1F1B on two ranks: F0 F1 B0 F2 B1 B2 / F0 B0 F1 B1 F2 B2.
Schedule sound() { return one_forward_one_backward({.ranks = 2, .microbatches = 3}); }

TEST(CheckSchedule, TheErrorShowsTheProgramsAroundIt) {
  Schedule schedule = sound();
  std::swap(schedule.programs[1][2], schedule.programs[1][3]);
  EXPECT_EQ(fault(schedule),
            "pipeline schedule, rank 1, action 2, B1: comes before its F\n"
            "rank 0:  F0  F1  B0  F2  B1  B2\n"
            "rank 1:  F0  B0 [B1] F1  F2  B2");
}

TEST(CheckSchedule, TheExcerptOfALongOneIsShort) {
  Schedule schedule = one_forward_one_backward({.ranks = 20, .microbatches = 100});
  schedule.programs[10][50].microbatch = 3;
  const std::string message = fault(schedule);
  EXPECT_THAT(message, StartsWith("pipeline schedule, rank 10, action 50, B3: runs a second time\nrank  6: …"));
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 9);
  EXPECT_THAT(message, HasSubstr("F29 [B3] "));
}

TEST(CheckSchedule, EveryStageAndMicrobatchOnce) {
  Schedule schedule = sound();
  schedule.programs[0].pop_back();
  EXPECT_THAT(fault(schedule), StartsWith("pipeline schedule, rank 0, the end: B2 is missing"));
  EXPECT_THAT(fault(schedule), HasSubstr(" B1 [end]"));

  schedule = sound();
  std::erase_if(schedule.programs[1], [](const Action& a) { return a.microbatch == 1; });
  EXPECT_THAT(fault(schedule), HasSubstr("rank 1, action 3, B2: adds weight gradients before micro-batch 1 does"));

  schedule = sound();
  schedule.programs[0].push_back({Kind::forward, 0, 2});
  EXPECT_THAT(fault(schedule), HasSubstr("action 6, F2: runs a second time"));

  schedule = sound();
  schedule.programs.pop_back();
  EXPECT_THAT(fault(schedule), HasSubstr("1 programs for 2 ranks"));
}

TEST(CheckSchedule, StagesAndMicrobatchesExist) {
  Schedule schedule = sound();
  schedule.programs[0][0].stage = 1;
  EXPECT_THAT(fault(schedule), HasSubstr("stage 1 is on rank 1"));
  schedule.programs[0][0].stage = 2;
  EXPECT_THAT(fault(schedule), HasSubstr("no stage 2 of 2"));
  schedule.programs[0][0] = {Kind::forward, 0, 3};
  EXPECT_THAT(fault(schedule), HasSubstr("no micro-batch 3 of 3"));
}

TEST(CheckSchedule, HalvesOfABackwardPass) {
  Schedule schedule = zero_bubble({.ranks = 2, .microbatches = 2});  // rank 0: F0 F1 I0 W0 I1 W1
  EXPECT_EQ(fault(schedule), "none");
  std::swap(schedule.programs[0][2], schedule.programs[0][3]);
  EXPECT_THAT(fault(schedule), HasSubstr("W0: comes before its I"));
  schedule = zero_bubble({.ranks = 2, .microbatches = 2});
  schedule.programs[0].push_back({Kind::backward, 0, 1});
  EXPECT_THAT(fault(schedule), HasSubstr("B1: its halves I and W run as well"));
  schedule = zero_bubble({.ranks = 2, .microbatches = 2});
  schedule.programs[0].pop_back();
  EXPECT_THAT(fault(schedule), HasSubstr("B1 is missing"));
}

TEST(CheckSchedule, WeightGradientsInTheOrderOfMicrobatches) {
  Schedule schedule = gpipe({.ranks = 1, .microbatches = 2});
  std::swap(schedule.programs[0][2], schedule.programs[0][3]);
  EXPECT_THAT(fault(schedule), HasSubstr("B1: adds weight gradients before micro-batch 0 does"));
}

TEST(CheckSchedule, MostInFlight) {
  EXPECT_EQ(fault(sound(), 2), "none");
  EXPECT_THAT(fault(sound(), 1),
              HasSubstr("rank 0, action 1, F1: keeps 2 micro-batches in memory, but only 1 are allowed"));
}

TEST(CheckSchedule, Deadlock) {
  Schedule schedule = gpipe({.ranks = 2, .microbatches = 2});  // F0 F1 B0 B1
  std::swap(schedule.programs[0][1], schedule.programs[0][2]);
  EXPECT_THAT(fault(schedule), StartsWith("rank 0 is stuck at B0: it waits for stage 1, rank 1, which is stuck "
                                          "at F1\n"));
}

/// The programs are F0 SF0 RB0 F1 SF1 B0 RB1 B1 for rank 0 and RF0 F0 RF1 B0 SB0 F1 B1 SB1 for rank 1.
Schedule with_messages() { return with_transfers(one_forward_one_backward({.ranks = 2, .microbatches = 2})); }

Action take(Program& program, Kind kind, int microbatch) {
  const auto at = std::find_if(program.begin(), program.end(),
                               [&](const Action& a) { return a.kind == kind && a.microbatch == microbatch; });
  const Action action = *at;
  program.erase(at);
  return action;
}

TEST(CheckSchedule, MessagesOfTwoRanksInOneOrder) {
  Schedule schedule = with_messages();
  EXPECT_EQ(fault(schedule), "none");
  Program& receiver = schedule.programs[1];
  receiver.insert(receiver.begin(), take(receiver, Kind::receive_activation, 1));
  EXPECT_THAT(fault(schedule), StartsWith("pipeline schedule, rank 1, action 0, RF1: message 0 from rank 0, which then "
                                          "sends SF0\n"));
}

TEST(CheckSchedule, SendsWithoutReceivesAndTheOtherWayRound) {
  Schedule schedule = with_messages();
  take(schedule.programs[1], Kind::receive_activation, 1);
  EXPECT_THAT(fault(schedule), HasSubstr("SF1: rank 1 never receives it"));
  schedule = with_messages();
  take(schedule.programs[0], Kind::send_activation, 1);
  EXPECT_THAT(fault(schedule), HasSubstr("RF1: message 1 from rank 0, which then sends nothing"));
  take(schedule.programs[1], Kind::receive_activation, 1);
  EXPECT_THAT(fault(schedule), HasSubstr("rank 1, which is stuck at F1"));
}

TEST(CheckSchedule, MessagesBeforeAndAfterTheirActions) {
  Schedule schedule = with_messages();
  Program& sender = schedule.programs[0];
  sender.insert(sender.begin(), take(sender, Kind::send_activation, 0));
  EXPECT_THAT(fault(schedule), HasSubstr("SF0: comes before its F"));

  schedule = with_messages();
  Program& receiver = schedule.programs[1];
  receiver.insert(receiver.begin() + 1, take(receiver, Kind::receive_activation, 0));
  EXPECT_THAT(fault(schedule), HasSubstr("RF0: comes after its F"));

  schedule = with_messages();
  schedule.programs[0].push_back({Kind::send_gradient, 0, 0});
  EXPECT_THAT(fault(schedule), HasSubstr("SB0: has no peer to exchange it with"));

  schedule = gpipe({.ranks = 1, .microbatches = 1});
  schedule.programs[0].push_back({Kind::receive_activation, 0, 0});
  EXPECT_THAT(fault(schedule), HasSubstr("has no peer to exchange it with"));
}

}  // namespace
}  // namespace lyceum
