#include "parallel/pipeline/transfers.h"

#include <algorithm>
#include <limits>
#include <map>

#include "core/error.h"
#include "parallel/pipeline/schedule_text.h"

namespace lyceum {
namespace {

using Kind = Action::Kind;

Action sending(const Handover& handover) {
  return {handover.gradient ? Kind::send_gradient : Kind::send_activation, handover.from, handover.microbatch};
}
Action receiving(const Handover& handover) {
  return {handover.gradient ? Kind::receive_gradient : Kind::receive_activation, handover.to, handover.microbatch};
}

/// A receive and the index of the computing action before which it is inserted.
struct InsertedReceive {
  Action receive;
  std::size_t before;
};

constexpr std::size_t nowhere = std::numeric_limits<std::size_t>::max();

/// Returns, for each handover, the index of the action that needs it in the program of its rank.
std::vector<std::size_t> indices_of_need(const Schedule& computing) {
  std::vector<std::size_t> indices(table_size(computing.shape), nowhere);
  for (const Program& program : computing.programs) {
    for (std::size_t i = 0; i < program.size(); ++i) {
      require(program[i].computes(), "{}: the schedule must not contain sends and receives yet",
              text(program[i], computing.shape));
      const auto needed = needed_by(program[i], computing.shape);
      if (needed) indices[table_index(*needed, computing.shape)] = i;
    }
  }
  return indices;
}

/// Returns the receives of every rank; those from one sender are in the order of its sends.
std::vector<std::vector<InsertedReceive>> receives_of_ranks(const Schedule& computing) {
  const PipelineShape& shape = computing.shape;
  const std::vector<std::size_t> indices = indices_of_need(computing);
  std::vector<std::vector<InsertedReceive>> all(computing.programs.size());
  for (std::size_t from = 0; from < computing.programs.size(); ++from) {
    std::map<int, std::vector<InsertedReceive>> receives;  // by receiving rank, in the order of sends
    for (const Action& action : computing.programs[from]) {
      const auto made = made_by(action, shape);
      if (!made || !crosses_ranks(*made, shape)) continue;
      const std::size_t index = indices[table_index(*made, shape)];
      require(index != nowhere, "no action needs the result of {} of stage {}", text(action, shape), action.stage);
      receives[shape.rank_of(made->to)].push_back({receiving(*made), index > 0 ? index - 1 : 0});
    }
    for (auto& [to, messages] : receives) {
      // A message must be received before all later ones from the same sender, even if it is needed after them.
      for (std::size_t i = messages.size(); i-- > 1;) {
        messages[i - 1].before = std::min(messages[i - 1].before, messages[i].before);
      }
      auto& inserted = all[static_cast<std::size_t>(to)];
      inserted.insert(inserted.end(), messages.begin(), messages.end());
    }
  }
  return all;
}

}  // namespace

Schedule with_transfers(const Schedule& computing) {
  const PipelineShape& shape = computing.shape;
  std::vector<std::vector<InsertedReceive>> receives = receives_of_ranks(computing);
  Schedule schedule{.shape = shape, .programs = {}};
  for (std::size_t rank = 0; rank < computing.programs.size(); ++rank) {
    std::vector<InsertedReceive>& inserted = receives[rank];
    std::stable_sort(inserted.begin(), inserted.end(),
                     [](const InsertedReceive& a, const InsertedReceive& b) { return a.before < b.before; });
    auto next = inserted.begin();
    Program& program = schedule.programs.emplace_back();
    for (std::size_t i = 0; i < computing.programs[rank].size(); ++i) {
      for (; next != inserted.end() && next->before == i; ++next) program.push_back(next->receive);
      const Action& action = computing.programs[rank][i];
      program.push_back(action);
      const auto made = made_by(action, shape);
      if (made && crosses_ranks(*made, shape)) program.push_back(sending(*made));
    }
  }
  return schedule;
}

}  // namespace lyceum
