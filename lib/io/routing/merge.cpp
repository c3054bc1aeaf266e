#include "io/routing/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace lyceum {

RecordMerge::RecordMerge(const RoutingHistory::Layer& router)
    : router_{.id = router.id,
              .top_k = router.top_k,
              .experts = router.experts,
              .expert_sizes = {},
              .expert_rank = {},
              .counts = {},
              .mean_probability = {},
              .drops = router.drops},
      counts_(static_cast<std::size_t>(router.top_k * router.experts)),
      dropped_(router.drops ? counts_.size() : 0),
      probability_(static_cast<std::size_t>(router.experts)),
      informed_probability_(probability_.size()) {}

void RecordMerge::add(const RoutingHistory::Layer& layer, std::size_t record) {
  const std::size_t experts = probability_.size();
  const std::int64_t* counts = layer.counts.data() + record * counts_.size();
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += counts[i];
  for (std::size_t i = 0; i < dropped_.size(); ++i) dropped_[i] += layer.dropped[record * counts_.size() + i];
  const auto tokens = static_cast<double>(std::accumulate(counts, counts + experts, std::int64_t{0}));
  const auto choices = static_cast<double>(std::accumulate(counts, counts + counts_.size(), std::int64_t{0}));
  has_entropy_ = has_entropy_ || !layer.mean_entropy.empty();
  const bool informed = !layer.mean_entropy.empty() && !std::isnan(layer.mean_entropy[record]);
  tokens_ += tokens;
  for (std::size_t e = 0; e < experts; ++e) {
    probability_[e] += tokens * double{layer.mean_probability[record * experts + e]};
  }
  if (informed) {
    informed_tokens_ += tokens;
    entropy_ += tokens * double{layer.mean_entropy[record]};
    for (std::size_t e = 0; e < experts; ++e) {
      informed_probability_[e] += tokens * double{layer.mean_probability[record * experts + e]};
    }
  }
  if (!layer.replicas.empty()) replicas_.add(layer.replicas[record]);
  if (layer.steps.empty()) return;
  has_steps_ = true;
  const StepBalance& steps = layer.steps[record];
  if (std::isnan(steps.max_vio_mean) || choices == 0) return;
  step_tokens_ += choices;
  max_vio_ += choices * double{steps.max_vio_mean};
  idle_ += choices * double{steps.idle_mean};
  worst_.max_vio_max = std::fmax(worst_.max_vio_max, steps.max_vio_max);
  worst_.idle_max = std::fmax(worst_.idle_max, steps.idle_max);
}

void RecordMerge::append_to(RoutingHistory::Layer& layer) {
  layer.counts.insert(layer.counts.end(), counts_.begin(), counts_.end());
  layer.dropped.insert(layer.dropped.end(), dropped_.begin(), dropped_.end());
  const bool informed = informed_tokens_ > 0;
  const double weight = informed ? informed_tokens_ : tokens_;
  for (const double sum : informed ? informed_probability_ : probability_) {
    layer.mean_probability.push_back(weight > 0 ? static_cast<float>(sum / weight) : 0.0f);
  }
  if (has_entropy_) {
    layer.mean_entropy.push_back(informed ? static_cast<float>(entropy_ / informed_tokens_)
                                          : std::numeric_limits<float>::quiet_NaN());
  }
  if (!replicas_.empty()) layer.replicas.push_back(replicas_);
  if (has_steps_) {
    StepBalance steps = worst_;
    if (step_tokens_ > 0) {
      steps.max_vio_mean = static_cast<float>(max_vio_ / step_tokens_);
      steps.idle_mean = static_cast<float>(idle_ / step_tokens_);
    }
    layer.steps.push_back(steps);
  }
  *this = RecordMerge(router_);
}

RoutingHistory merged_records(const RoutingReader& log, RecordRange range) {
  RoutingHistory merged{.steps = {range.size() > 0 ? log.steps()[range.end - 1] : -1}, .layers = log.routers()};
  for (std::size_t i = 0; i < merged.layers.size(); ++i) {
    RecordMerge merge(merged.layers[i]);
    log.for_each_part(i, range, [&](const RoutingHistory::Layer& part, std::size_t) {
      for (std::size_t r = 0; r < part.records(); ++r) merge.add(part, r);
    });
    merge.append_to(merged.layers[i]);
  }
  return merged;
}

}  // namespace lyceum
