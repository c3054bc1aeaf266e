#include "plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "core/error.h"
#include "io/config_check.h"
#include "io/table.h"

namespace lyceum {

namespace {

std::vector<int> divisors(int number) {
  std::vector<int> all;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) all.push_back(d);
  }
  return all;
}

/// Calls visit(config) for every variant that the ranks can form; it says whether that fits into memory.
class Variants {
 public:
  Variants(const Config& config, int world, const Cluster& cluster, const std::set<std::string>& fixed)
      : base_(config), world_(world), cluster_(cluster), fixed_(fixed) {}

  template <class Visit>
  void each(Visit&& visit) const {
    for (const int pipeline : values("parallel.pipeline", base_.parallel.pipeline, divisors(world_))) {
      if (pipeline > base_.model.layers || world_ % pipeline != 0) continue;
      for (const int tensor : values("parallel.tensor", base_.parallel.tensor, machine_shares())) {
        if (world_ / pipeline % tensor != 0) continue;
        for (const int sharers : values("parallel.expert_tensor", base_.parallel.expert_tensor, sharers_with(tensor))) {
          for (const int expert : values("parallel.expert", base_.parallel.expert, divisors(world_ / pipeline))) {
            if (world_ / pipeline % (expert * sharers) != 0 || expert > std::max<std::int64_t>(base_.moe.experts, 1)) {
              continue;
            }
            if (sharers > 1 && (base_.moe.experts == 0 || expert * sharers > world_ / pipeline)) continue;
            Config config = base_;
            config.parallel.pipeline = pipeline;
            config.parallel.tensor = tensor;
            config.parallel.expert = expert;
            config.parallel.expert_tensor = sharers;
            config.parallel.sequence = given("parallel.sequence") ? base_.parallel.sequence : tensor > 1;
            each_schedule(std::move(config), visit);
          }
        }
      }
    }
  }

 private:
  bool given(const char* key) const { return fixed_.contains(key); }
  template <class T>
  std::vector<T> values(const char* key, T own, std::vector<T> all) const {
    return given(key) ? std::vector<T>{own} : all;
  }
  /// Ranks that share a matrix talk in every block: they sit on one machine.
  std::vector<int> machine_shares() const {
    std::vector<int> all;
    for (const int d : divisors(cluster_.node_ranks)) {
      if ((d & (d - 1)) == 0) all.push_back(d);
    }
    return all;
  }

  static std::vector<int> sharers_with(int tensor) {
    return tensor > 1 ? std::vector<int>{1, tensor} : std::vector<int>{1};
  }

  template <class Visit>
  void each_schedule(Config config, Visit&& visit) const {
    const std::int64_t data = mesh_shape(config.parallel).data(world_);
    if (config.batch.global % data != 0) return;
    const std::int64_t share = config.batch.global / data;
    for (const std::int64_t micro : values<std::int64_t>("batch.micro", base_.batch.micro, {1, 2, 4, 8})) {
      if (micro < 1 || share % micro != 0) continue;
      config.batch.micro = micro;
      for (const auto& [schedule, chunks] : schedules(config, share / micro)) {
        config.parallel.schedule = schedule;
        config.parallel.virtual_stages = chunks;
        for (const std::string& recompute :
             values<std::string>("model.recompute", base_.model.recompute, {"none", "selective", "full"})) {
          config.model.recompute = recompute;
          // A higher stage takes longer: it is tried where the one before does not fit.
          for (const int zero : values("parallel.zero", base_.parallel.zero, {1, 2, 3})) {
            config.parallel.zero = zero;
            if (visit(config)) break;
          }
        }
      }
    }
  }

  std::vector<std::pair<std::string, int>> schedules(const Config& config, std::int64_t passes) const {
    const int pipeline = config.parallel.pipeline;
    if (given("parallel.schedule") || given("parallel.virtual_stages")) {
      return {{base_.parallel.schedule, base_.parallel.virtual_stages}};
    }
    std::vector<std::pair<std::string, int>> all{{"1f1b", 1}};
    if (pipeline == 1) return all;
    all.emplace_back("zb-h1", 1);
    if (passes % pipeline == 0 && 2 * pipeline <= config.model.layers) all.emplace_back("interleaved", 2);
    return all;
  }

  const Config& base_;
  int world_;
  const Cluster& cluster_;
  const std::set<std::string>& fixed_;
};

/// What decides where a step of `plan` takes longer than one of the best.
std::string loss_against(const MeshPlan& plan, const MeshPlan& best) {
  const StepTime &own = *plan.time, &other = *best.time;
  const std::array<std::pair<const char*, double>, 5> differences{
      {{"compute", own.compute - other.compute},
       {"tensor and expert transfers", own.transfers - other.transfers},
       {"pipeline bubble", own.bubble - other.bubble},
       {"sums and gathers over copies", own.synchronising - other.synchronising},
       {"optimizer", own.optimizer - other.optimizer}}};
  const auto more = std::max_element(differences.begin(), differences.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto less = std::min_element(differences.begin(), differences.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string text =
      fmt::format("{:+.1f} %: {} {:+.3g} s", 100 * (own.total() / other.total() - 1), more->first, more->second);
  if (less->second < -0.005 * other.total()) text += fmt::format(", {} {:+.3g} s", less->first, less->second);
  return text;
}

std::string what_binds(const MeshPlan& plan, const Cluster& cluster) {
  const StepTime& time = *plan.time;
  return fmt::format("{:.0f} % of the step computes; {} of {} are used", 100 * time.compute / time.total(),
                     text_of_bytes(static_cast<std::int64_t>(plan.peak_memory())),
                     text_of_bytes(static_cast<std::int64_t>(cluster.memory)));
}

using Axes = std::tuple<int, int, int, int>;
Axes axes_of(const MeshPlan& plan) {
  const ParallelConfig& parallel = plan.config.parallel;
  return {parallel.pipeline, parallel.tensor, parallel.expert, parallel.expert_tensor};
}

}  // namespace

SearchResult search_meshes(const Config& config, int world, const Cluster& cluster, const std::set<std::string>& fixed,
                           std::size_t most) {
  Config alone = config;  // what is wrong whatever the mesh
  alone.parallel = {};
  alone.batch.micro = 0;
  require_none(contradictions(alone, 1));
  SearchResult result;
  std::map<Axes, MeshPlan> fastest;
  std::optional<MeshPlan> nearest;
  std::map<std::tuple<int, int, int, int, std::int64_t, bool>, bool> checked;
  Variants(config, world, cluster, fixed).each([&](const Config& variant) {
    const ParallelConfig& parallel = variant.parallel;
    const auto [check, first] =
        checked.try_emplace({parallel.pipeline, parallel.tensor, parallel.expert, parallel.expert_tensor,
                             variant.batch.micro, parallel.schedule == "interleaved"});
    if (first) check->second = contradictions(variant, world).empty();
    if (!check->second) return true;
    ++result.considered;
    Config resolved = variant;
    resolve(resolved, world);
    MeshPlan plan = plan_mesh(resolved, world, cluster,
                              {.microbatches = std::int64_t{2} * resolved.parallel.pipeline, .memory = cluster.memory});
    if (plan.peak_memory() > cluster.memory) {
      ++result.too_large;
      if (!nearest || plan.peak_memory() < nearest->peak_memory()) nearest = std::move(plan);
      return false;
    }
    const auto [place, fresh] = fastest.try_emplace(axes_of(plan), plan);
    if (!fresh && plan.time->total() < place->second.time->total()) place->second = std::move(plan);
    return true;
  });
  require_usage(
      result.considered > 0,
      "no mesh of {} ranks divides this model and batch.global = {}: change one of them, or the keys that are "
      "fixed on the command line",
      world, config.batch.global);
  if (fastest.empty()) require_fits(*nearest, cluster.memory, "a rank of " + cluster.name);
  for (auto& [axes, plan] : fastest) result.best.push_back({.plan = std::move(plan), .reason = {}});
  std::ranges::sort(result.best, {}, [](const Candidate& candidate) { return candidate.plan.time->total(); });
  if (result.best.size() > most) result.best.resize(most);
  for (Candidate& candidate : result.best) {
    candidate.plan = plan_mesh(candidate.plan.config, world, cluster);  // with all its micro-batches
  }
  result.best.front().reason = what_binds(result.best.front().plan, cluster);
  for (std::size_t i = 1; i < result.best.size(); ++i) {
    result.best[i].reason = loss_against(result.best[i].plan, result.best.front().plan);
  }
  return result;
}

}  // namespace lyceum
