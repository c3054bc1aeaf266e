#include "parallel/pipeline/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "parallel/pipeline/schedule_text.h"

namespace lyceum {

double Timeline::makespan() const {
  double end = 0;
  for (const auto& actions : ranks) {
    for (const TimedAction& timed : actions) end = std::max(end, timed.end);
  }
  return end;
}

double Timeline::busy(int rank) const {
  double sum = 0;
  for (const TimedAction& timed : ranks.at(static_cast<std::size_t>(rank))) {
    if (timed.action.computes()) sum += timed.end - timed.start;
  }
  return sum;
}

double Timeline::bubble_fraction(int rank) const {
  const double whole = makespan();
  return whole > 0 ? (whole - busy(rank)) / whole : 0;
}

double Timeline::bubble_fraction() const {
  const double ratio = bubble_ratio();
  return ratio / (1 + ratio);
}

double Timeline::bubble_ratio() const {
  double all = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) all += busy(static_cast<int>(rank));
  const double idle = static_cast<double>(ranks.size()) * makespan() - all;
  return idle > 1e-9 * all ? idle / all : 0;  // absorbs rounding: the sums are added in different orders
}

double peak_activations(std::span<const Action> program, std::span<const SavedActivations> stages) {
  double now = 0, peak = 0;
  for (const Action& action : program) {
    if (!action.computes()) continue;
    const SavedActivations& saved = stages[static_cast<std::size_t>(action.stage)];
    switch (action.kind) {
      case Action::Kind::forward: now += saved.until_input_gradient; break;
      case Action::Kind::backward: now -= saved.until_input_gradient; break;
      case Action::Kind::backward_input: now -= saved.until_input_gradient - saved.until_weight_gradient; break;
      default: now -= saved.until_weight_gradient; break;
    }
    peak = std::max(peak, now);
  }
  return peak;
}

int peak_in_flight(std::span<const Action> program) {
  int now = 0, peak = 0;
  for (const Action& action : program) {
    now += action.in_flight_change();
    peak = std::max(peak, now);
  }
  return peak;
}

namespace {

double shortest_action(const Timeline& timeline) {
  double shortest = std::numeric_limits<double>::infinity();
  for (const auto& actions : timeline.ranks) {
    for (const TimedAction& timed : actions) {
      const double length = timed.end - timed.start;
      if (timed.action.computes() && length > 0) shortest = std::min(shortest, length);
    }
  }
  return shortest;
}

}  // namespace

std::string text_grid(const Timeline& timeline, double unit) {
  if (!(unit > 0)) unit = shortest_action(timeline);
  const double columns = std::round(timeline.makespan() / unit);
  require_usage(columns <= 10000, "the timeline has {} columns: choose a longer unit of time", columns);
  std::size_t width = 1;
  for (const auto& actions : timeline.ranks) {
    for (const TimedAction& timed : actions) {
      if (timed.action.computes()) width = std::max(width, text(timed.action, timeline.shape).size());
    }
  }
  std::string grid;
  const auto digits = std::to_string(timeline.ranks.size() - 1).size();
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    std::vector<std::string> row(static_cast<std::size_t>(columns), ".");
    for (const TimedAction& timed : timeline.ranks[rank]) {
      if (!timed.action.computes()) continue;
      const auto first = static_cast<std::size_t>(std::lround(timed.start / unit));
      const auto end = std::min(row.size(), static_cast<std::size_t>(std::lround(timed.end / unit)));
      for (std::size_t c = first; c < end; ++c) {
        row[c] = c == first ? text(timed.action, timeline.shape) : std::string(width, '-');
      }
    }
    grid += fmt::format("row {:>{}} |", rank, digits);
    for (const std::string& cell : row) grid += fmt::format(" {:>{}}", cell, width);
    grid += '\n';
  }
  return grid;
}

}  // namespace lyceum
