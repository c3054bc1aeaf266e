#include "parallel/pipeline/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "parallel/pipeline/schedule_text.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/pipeline/timeline.h"

namespace lyceum {
namespace {

using Kind = Action::Kind;

[[noreturn]] void fail_at(const Schedule& schedule, int rank, std::size_t index, const std::string& fault) {
  const Program& program = schedule.programs[static_cast<std::size_t>(rank)];
  const std::string position = index < program.size()
                                   ? fmt::format("action {}, {}", index, text(program[index], schedule.shape))
                                   : std::string("the end");
  fail(ExitCode::failed, "pipeline schedule, rank {}, {}: {}{}", rank, position, fault, excerpt(schedule, rank, index));
}

/// Checks each action of one rank's program against the actions before it.
class ProgramCheck {
 public:
  ProgramCheck(const Schedule& schedule, int rank, bool trains)
      : schedule_(schedule), shape_(schedule.shape), rank_(rank), trains_(trains) {}

  void run(int most_in_flight) {
    const Program& program = schedule_.programs[static_cast<std::size_t>(rank_)];
    int in_flight = 0;
    for (at_ = 0; at_ < program.size(); ++at_) {
      const Action& action = program[at_];
      check_target(action);
      check_order(action);
      done_.insert(action);
      in_flight += action.in_flight_change();
      ensure(most_in_flight == 0 || in_flight <= most_in_flight,
             fmt::format("keeps {} micro-batches in memory, but only {} are allowed", in_flight, most_in_flight));
    }
    check_complete();
  }

 private:
  void ensure(bool condition, const std::string& fault) const {
    if (!condition) fail_at(schedule_, rank_, at_, fault);
  }
  bool done(Kind kind, const Action& like) const { return done_.contains({kind, like.stage, like.microbatch}); }

  void check_target(const Action& action) const {
    ensure(action.stage >= 0 && action.stage < shape_.stages(),
           fmt::format("there is no stage {} of {}", action.stage, shape_.stages()));
    ensure(shape_.rank_of(action.stage) == rank_,
           fmt::format("stage {} is on rank {}", action.stage, shape_.rank_of(action.stage)));
    ensure(action.microbatch >= 0 && action.microbatch < shape_.microbatches,
           fmt::format("there is no micro-batch {} of {}", action.microbatch, shape_.microbatches));
    ensure(!done_.contains(action), "runs a second time");
    if (action.computes()) return;
    const Handover moved = moved_by(action);
    const int other = moved.from == action.stage ? moved.to : moved.from;
    ensure(other >= 0 && other < shape_.stages() && crosses_ranks(moved, shape_), "has no peer to exchange it with");
  }

  void check_order(const Action& action) {
    switch (action.kind) {
      case Kind::forward: break;
      case Kind::backward:
        ensure(!done(Kind::backward_input, action) && !done(Kind::backward_weight, action),
               "its halves I and W run as well");
        [[fallthrough]];
      case Kind::backward_input:
        ensure(done(Kind::forward, action), "comes before its F");
        ensure(action.kind == Kind::backward || !done(Kind::backward, action), "its B runs as well");
        break;
      case Kind::backward_weight: ensure(done(Kind::backward_input, action), "comes before its I"); break;
      case Kind::send_activation: ensure(done(Kind::forward, action), "comes before its F"); break;
      case Kind::send_gradient:
        ensure(!trains_ || done(Kind::backward, action) || done(Kind::backward_input, action),
               "comes before its B or I");
        break;
      case Kind::receive_activation: ensure(!done(Kind::forward, action), "comes after its F"); break;
      case Kind::receive_gradient:
        ensure(!done(Kind::backward, action) && !done(Kind::backward_input, action), "comes after its B or I");
        break;
    }
    if (!action.gives_weight_gradient()) return;
    int& expected = weight_gradients_[action.stage];
    ensure(action.microbatch == expected,
           fmt::format("adds weight gradients before micro-batch {} does: sums would differ from those of one rank",
                       expected));
    ++expected;
  }

  void check_complete() const {
    for (int chunk = 0; chunk < shape_.virtual_stages; ++chunk) {
      const int stage = chunk * shape_.ranks + rank_;
      for (int m = 0; m < shape_.microbatches; ++m) {
        const Action action{Kind::forward, stage, m};
        ensure(done(Kind::forward, action), fmt::format("{} is missing", text(action, shape_)));
        ensure(!trains_ || done(Kind::backward, action) || done(Kind::backward_weight, action),
               fmt::format("{} is missing", text(Action{Kind::backward, stage, m}, shape_)));
      }
    }
  }

  const Schedule& schedule_;
  const PipelineShape shape_;
  int rank_;
  bool trains_;
  std::size_t at_ = 0;
  std::set<Action> done_;
  std::map<int, int> weight_gradients_;  // by stage: the next micro-batch to add
};

/// A sending or receiving action and its index in its rank's program.
struct Transfer {
  Handover handover;
  std::size_t index;
};
using Transfers = std::map<std::pair<int, int>, std::vector<Transfer>>;  // by {sending rank, receiving rank}

void check_transfers(const Schedule& schedule) {
  const PipelineShape& shape = schedule.shape;
  Transfers sends, receives;
  for (const Program& program : schedule.programs) {
    for (std::size_t i = 0; i < program.size(); ++i) {
      if (program[i].computes()) continue;
      const Handover moved = moved_by(program[i]);
      const bool sending = moved.from == program[i].stage;
      (sending ? sends : receives)[{shape.rank_of(moved.from), shape.rank_of(moved.to)}].push_back({moved, i});
    }
  }
  for (const auto& [ranks, received] : receives) {
    const std::vector<Transfer>& sent = sends[ranks];
    for (std::size_t i = 0; i < received.size(); ++i) {
      if (i < sent.size() && sent[i].handover == received[i].handover) continue;
      const Program& sender = schedule.programs[static_cast<std::size_t>(ranks.first)];
      const std::string instead = i < sent.size() ? text(sender[sent[i].index], shape) : "nothing";
      fail_at(schedule, ranks.second, received[i].index,
              fmt::format("message {} from rank {}, which then sends {}", i, ranks.first, instead));
    }
  }
  for (const auto& [ranks, sent] : sends) {
    const std::size_t taken = receives[ranks].size();
    if (taken < sent.size()) {
      fail_at(schedule, ranks.first, sent[taken].index, fmt::format("rank {} never receives it", ranks.second));
    }
  }
}

}  // namespace

void check_schedule(const Schedule& schedule, int most_in_flight) {
  const PipelineShape& shape = schedule.shape;
  require(static_cast<int>(schedule.programs.size()) == shape.ranks, "pipeline schedule: {} programs for {} ranks",
          schedule.programs.size(), shape.ranks);
  const bool trains = std::any_of(schedule.programs.begin(), schedule.programs.end(), [](const Program& program) {
    return std::any_of(program.begin(), program.end(),
                       [](const Action& a) { return a.gives_input_gradient() || a.gives_weight_gradient(); });
  });
  for (int rank = 0; rank < shape.ranks; ++rank) ProgramCheck(schedule, rank, trains).run(most_in_flight);
  check_transfers(schedule);
  (void)simulate(schedule, equal_costs(shape, {}));
}

}  // namespace lyceum
