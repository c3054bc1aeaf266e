#include "model/routing/dead_experts.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/text/table.h"

namespace lyceum {
namespace {

constexpr std::int64_t most_listed_layers = 4;  // in one line; metrics and page report all layers

/// Builds one message: a list of layers, each with the experts that changed.
class LayersLine {
 public:
  void add(const IdleExperts& layer, const std::vector<std::size_t>& experts, std::int64_t dead) {
    if (experts.empty()) return;
    if (++layers_ > most_listed_layers) return;
    text_ += fmt::format("{}layer {}: {} ({} of {} dead)", text_.empty() ? "" : "; ", label_of(layer.id),
                         ranges_text(experts), dead, layer.steps.size());
  }
  bool empty() const { return layers_ == 0; }
  std::string text() const {
    if (layers_ <= most_listed_layers) return text_;
    return fmt::format("{}; and in {}", text_, count_text(layers_ - most_listed_layers, "more layer"));
  }

 private:
  std::string text_;
  std::int64_t layers_ = 0;
};

}  // namespace

void add_step(std::vector<IdleExperts>& idle, const std::vector<RoutingSums>& sums) {
  idle.resize(sums.size());
  for (std::size_t l = 0; l < sums.size(); ++l) {
    const auto experts = static_cast<std::size_t>(sums[l].experts);
    idle[l].id = sums[l].id;
    idle[l].steps.resize(experts, 0);
    for (std::int64_t& steps : idle[l].steps) ++steps;
    for (std::size_t i = 0; i < sums[l].counts.size(); ++i) {
      if (sums[l].counts[i] > 0) idle[l].steps[i % experts] = 0;
    }
    std::fill_n(idle[l].steps.begin(), sums[l].always_on, 0);
  }
}

std::int64_t DeadExperts::count(const std::vector<IdleExperts>& idle) const {
  std::int64_t count = 0;
  for (const IdleExperts& layer : idle) {
    count += std::ranges::count_if(layer.steps, [&](std::int64_t steps) { return is_dead(steps); });
  }
  return count;
}

std::vector<std::string> DeadExperts::news(std::int64_t step, const std::vector<IdleExperts>& idle) {
  LayersLine died, back;
  reported_.resize(idle.size());
  for (std::size_t l = 0; l < idle.size(); ++l) {
    reported_[l].resize(idle[l].steps.size());
    std::vector<std::size_t> new_dead, new_living;
    for (std::size_t e = 0; e < reported_[l].size(); ++e) {
      const bool now = is_dead(idle[l].steps[e]);
      if (now != reported_[l][e]) (now ? new_dead : new_living).push_back(e);
      reported_[l][e] = now;
    }
    const std::int64_t all = count({idle[l]});
    died.add(idle[l], new_dead, all);
    back.add(idle[l], new_living, all);
  }
  std::vector<std::string> lines;
  if (!died.empty()) {
    lines.push_back(fmt::format("warning: step {}: dead experts, no token for {}: {}", step,
                                count_text(window_, "step"), died.text()));
  }
  if (!back.empty()) lines.push_back(fmt::format("step {}: experts that receive tokens again: {}", step, back.text()));
  return lines;
}

}  // namespace lyceum
