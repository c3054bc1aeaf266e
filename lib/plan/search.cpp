#include "plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "config/check.h"
#include "core/error.h"
#include "io/text/table.h"
#include "plan/variants.h"

namespace lyceum {

namespace {

/// Describes why a step of `plan` takes longer than one of `best`: the category that loses the most and, if relevant,
/// the one that gains the most.
std::string loss_against(const MeshPlan& plan, const MeshPlan& best) {
  const StepTime &own = *plan.time, &other = *best.time;
  const std::array<std::pair<const char*, double>, 6> differences{
      {{"compute", own.compute - other.compute},
       {"tensor and expert transfers", own.transfers - other.transfers},
       {"pipeline bubble", own.bubble - other.bubble},
       {"reductions and gathers over copies", own.synchronising - other.synchronising},
       {"optimizer", own.optimizer - other.optimizer},
       {"Muon", own.muon - other.muon}}};
  const auto more = std::max_element(differences.begin(), differences.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto less = std::min_element(differences.begin(), differences.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string text =
      fmt::format("{:+.1f} %: {} {:+.3g} s", 100 * (own.total() / other.total() - 1), more->first, more->second);
  if (less->second < -0.005 * other.total()) text += fmt::format(", {} {:+.3g} s", less->first, less->second);
  return text;
}

/// Describes the share of computation and the memory of the best plan.
std::string main_cost(const MeshPlan& plan, const Cluster& cluster) {
  const StepTime& time = *plan.time;
  return fmt::format("{:.0f} % of the step is compute; {} of {} are used", 100 * time.compute / time.total(),
                     text_of_bytes(static_cast<std::int64_t>(plan.peak_memory())),
                     text_of_bytes(static_cast<std::int64_t>(cluster.memory)));
}

/// The axes in which results differ. Of variants with equal axes only the fastest is a result.
struct Axes {
  int pipeline, tensor, expert, expert_tensor;
  auto operator<=>(const Axes&) const = default;
};

Axes axes_of(const ParallelConfig& parallel) {
  return {parallel.pipeline, parallel.tensor, parallel.expert, parallel.expert_tensor};
}

class Search {
 public:
  Search(int world, const Cluster& cluster, const std::set<std::string>& fixed, const LoadProfile* load)
      : world_(world), cluster_(cluster), fixed_(fixed), load_(load) {}

  /// Plans `config` with every kind of recomputation, each with the first ZeRO stage that fits, since a higher stage
  /// takes longer.
  void consider(Config config) {
    if (!can_plan_step(config, world_)) return;
    for (const Recompute recompute :
         values("model.recompute", config.model.recompute, {Recompute::none, Recompute::selective, Recompute::full})) {
      Config variant = config;
      variant.model.recompute = recompute;
      for (const int zero : values("parallel.zero", config.parallel.zero, {1, 2, 3})) {
        if (zero == 3 && overlaps_batches(config.parallel)) break;  // they exclude each other
        variant.parallel.zero = zero;
        if (fits(variant)) break;
      }
    }
  }

  SearchResult result(std::size_t most);

 private:
  template <class T>
  std::vector<T> values(const char* key, T own, std::vector<T> all) const {
    return fixed_.contains(key) ? std::vector<T>{own} : all;
  }

  bool fits(const Config& config) {
    ++result_.considered;
    MeshPlan plan = plan_mesh(config, world_, cluster_,
                              {.microbatches = std::int64_t{2} * config.parallel.pipeline,
                               .memory = cluster_.memory,
                               .all_rows = fastest_.empty(),  // the closest mesh is reported if none fits
                               .cache = &cache_},
                              load_);
    if (plan.peak_memory() > cluster_.memory || !stages_fit(config)) {
      ++result_.too_large;
      if (fastest_.empty() && (!nearest_ || plan.peak_memory() < nearest_->peak_memory())) nearest_ = std::move(plan);
      return false;
    }
    const auto [entry, fresh] = fastest_.try_emplace(axes_of(config.parallel), plan);
    if (!fresh && plan.time->total() < entry->second.time->total()) entry->second = std::move(plan);
    return true;
  }

  /// True if the training stages after the first fit in memory.
  bool stages_fit(const Config& config) {
    for (int stage = 2; stage <= stage_count(config); ++stage) {
      const Config own = config_of_stage(config, stage);
      if (!can_plan_step(own, world_)) return false;
      const MeshPlan plan = plan_mesh(own, world_, {},
                                      {.microbatches = std::int64_t{2} * own.parallel.pipeline,
                                       .memory = cluster_.memory,
                                       .all_rows = false,
                                       .cache = &stage_caches_[stage]});
      if (plan.peak_memory() > cluster_.memory) return false;
    }
    return true;
  }

  int world_;
  const Cluster& cluster_;
  const std::set<std::string>& fixed_;
  const LoadProfile* load_;
  MeshPlanCache cache_;
  std::map<int, MeshPlanCache> stage_caches_;
  std::map<Axes, MeshPlan> fastest_;
  std::optional<MeshPlan> nearest_;
  SearchResult result_;
};

/// Throws the Error for a search without a result. Its advice does not contain changes that the search has already
/// tried.
[[noreturn]] void fail_too_large(const MeshPlan& nearest, int ways, const Cluster& cluster, bool fixed) {
  require_usage(nearest.peak_memory() > cluster.memory,
                "none of {} meshes of {} ranks fits in memory in every training stage: use more ranks (--world), or "
                "plan one mesh (--ranks) to see the stages",
                ways, nearest.world);
  fail(ExitCode::usage,
       "none of {} meshes of {} ranks fits in memory; in the closest, {}, {}: use more ranks (--world), or {}\n{}",
       ways, nearest.world, nearest.text(), need_text(nearest, cluster.memory, "a rank of " + cluster.name),
       fixed ? "remove keys from the command line, so that the search can choose them"
             : "a smaller model or batch.seq_len",
       error_table(nearest));
}

SearchResult Search::result(std::size_t most) {
  if (result_.considered == 0) {
    fail(ExitCode::usage,
         "a step on {} ranks has too many micro-batches to plan: raise batch.micro or lower batch.global", world_);
  }
  if (fastest_.empty()) fail_too_large(*nearest_, result_.considered, cluster_, !fixed_.empty());
  std::vector<Candidate>& best = result_.best;
  const auto sort = [&] {
    std::ranges::sort(best, {}, [](const Candidate& candidate) { return candidate.plan.time->total(); });
  };
  for (auto& [axes, plan] : fastest_) best.push_back({.plan = std::move(plan), .reason = {}});
  sort();
  // The order may change when all micro-batches are planned, so some more candidates than `most` are planned again.
  constexpr std::size_t reserve = 4;
  if (best.size() > reserve * most) best.resize(reserve * most);
  for (Candidate& candidate : best) {
    candidate.plan = plan_mesh(candidate.plan.config, world_, cluster_, {.cache = &cache_}, load_);
  }
  sort();
  if (best.size() > most) best.resize(most);
  best.front().reason = main_cost(best.front().plan, cluster_);
  for (std::size_t i = 1; i < best.size(); ++i) best[i].reason = loss_against(best[i].plan, best.front().plan);
  return std::move(result_);
}

}  // namespace

std::vector<std::string> search_problems(const Config& config, int world, int node_ranks,
                                         const std::set<std::string>& fixed) {
  return find_variants(config, world, node_ranks, fixed).problems;
}

SearchResult search_meshes(const Config& config, int world, const Cluster& cluster, const std::set<std::string>& fixed,
                           std::size_t most, const LoadProfile* load) {
  const Variants variants = find_variants(config, world, cluster.node_ranks, fixed);
  require_none(variants.problems);
  Search search(world, cluster, fixed, load);
  for (const Config& variant : variants.possible) search.consider(variant);
  return search.result(most);
}

}  // namespace lyceum
