#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "config/check.h"
#include "core/error.h"
#include "model/routing/mixture.h"
#include "plan/mesh_plan.h"
#include "plan/text.h"
#include "plan/variants.h"

namespace lyceum {

namespace {

/// A planned configuration: the changes that distinguish it from the given one, and the bytes of its fullest rank.
struct ChangedPlan {
  std::vector<std::string> changes;  // "model.recompute = full"
  Config config;
  double need;
};

/// Finds changes of a configuration after which it fits in memory, by planning it with each of them.
class ChangeFinder {
 public:
  ChangeFinder(const MeshPlan& plan, double available)
      : world_(plan.world),
        reading_(plan.reading),
        available_(available),
        process_(plan.peak_resident() > plan.peak_memory()),
        given_{{}, plan.config, plan.peak_resident()} {}

  std::string text() const {
    constexpr std::size_t most_listed = 3;
    std::vector<ChangedPlan> candidates = single_changes(given_);
    std::erase_if(candidates, [&](const ChangedPlan& candidate) { return !fits(candidate); });
    if (candidates.empty()) {
      const std::optional<ChangedPlan> shorter =
          change(given_, "batch.seq_len", halves(given_.config.batch.seq_len), &Config::batch, &BatchConfig::seq_len);
      if (!shorter || !fits(*shorter)) return combined_text();
      candidates.push_back(*shorter);
    }
    std::string text = "set ";
    for (std::size_t i = 0; i < std::min(candidates.size(), most_listed); ++i) {
      text += fmt::format("{}{} (needs {})", i == 0 ? "" : ", or ", candidates[i].changes[0],
                          bytes_text(candidates[i].need));
    }
    return text;
  }

 private:
  bool fits(const ChangedPlan& candidate) const { return candidate.need <= available_; }

  /// Describes changes of several keys: adds the change that saves the most until the configuration fits.
  std::string combined_text() const {
    ChangedPlan candidate = given_;
    while (!fits(candidate)) {
      std::vector<ChangedPlan> candidates = single_changes(candidate);
      const auto best = std::ranges::min_element(candidates, {}, &ChangedPlan::need);
      if (best == candidates.end() || best->need >= candidate.need) break;
      candidate = std::move(*best);
    }
    const char* otherwise = "use more ranks or a smaller model";
    if (candidate.changes.empty())
      return fmt::format("no change of the mesh, batch or recomputation helps: {}", otherwise);
    std::string changes;
    for (const std::string& change : candidate.changes) changes += (changes.empty() ? "" : ", ") + change;
    return fmt::format("no change of a single key is enough; {} needs {}{}", changes, bytes_text(candidate.need),
                       fits(candidate) ? "" : fmt::format(": {}", otherwise));
  }

  /// Sets a key to the first of `values` with which the configuration fits, or else to the one that needs the least
  /// memory. Returns nothing if `values` is empty.
  template <class T, class Section, class Member>
  std::optional<ChangedPlan> change(const ChangedPlan& from, const std::string& key, const std::vector<T>& values,
                                    Section Config::*section, Member Section::*member) const {
    std::optional<ChangedPlan> best;
    for (const T value : values) {
      ChangedPlan candidate = from;
      candidate.config = without_derived_values(from.config);
      candidate.config.*section.*member = value;
      candidate.need = plan(candidate.config);
      if (best && candidate.need >= best->need) continue;
      std::erase_if(candidate.changes, [&](const std::string& earlier) { return earlier.starts_with(key + " = "); });
      if constexpr (std::is_enum_v<T>) {
        candidate.changes.push_back(fmt::format("{} = {}", key, name_of(value)));
      } else {
        candidate.changes.push_back(fmt::format("{} = {}", key, value));
      }
      best = std::move(candidate);
      if (fits(*best)) break;
    }
    return best;
  }

  /// Returns change() for each key that can save memory without changing the training, if it does save some. Keys that
  /// cost the least time come first.
  std::vector<ChangedPlan> single_changes(const ChangedPlan& from) const {
    const Config& config = from.config;
    const ParallelConfig& parallel = config.parallel;
    std::vector<ChangedPlan> candidates;
    const auto add = [&](const char* key, const auto& values, auto section, auto member) {
      std::optional<ChangedPlan> candidate = change(from, key, values, section, member);
      if (candidate && candidate->need < from.need) candidates.push_back(std::move(*candidate));
    };
    constexpr std::int64_t chunk = 1024;  // a number of rows with which matrix products are fast
    if (config.model.loss_chunk == 0 || config.model.loss_chunk > chunk)
      add("model.loss_chunk", std::vector{chunk}, &Config::model, &ModelConfig::loss_chunk);
    if (parallel.schedule == ScheduleKind::gpipe)
      add("parallel.schedule", std::vector{ScheduleKind::one_forward_one_backward}, &Config::parallel,
          &ParallelConfig::schedule);
    if (parallel.expert_exchange == ExpertExchange::bounded)
      add("parallel.expert_exchange", std::vector{ExpertExchange::counted}, &Config::parallel,
          &ParallelConfig::expert_exchange);
    add("parallel.replicas", fewer(parallel.replicas), &Config::parallel, &ParallelConfig::replicas);
    add("parallel.zero", above(parallel.zero, {1, 2, 3}), &Config::parallel, &ParallelConfig::zero);
    add("model.recompute", above(config.model.recompute, {Recompute::selective, Recompute::full}), &Config::model,
        &ModelConfig::recompute);
    add("batch.micro", smaller_divisors(config.batch.micro), &Config::batch, &BatchConfig::micro);
    add("parallel.expert", divisors_above(parallel.expert, fewest_experts(config)), &Config::parallel,
        &ParallelConfig::expert);
    add("parallel.pipeline", divisors_above(parallel.pipeline, config.model.layers), &Config::parallel,
        &ParallelConfig::pipeline);
    add("parallel.tensor", divisors_above(parallel.tensor, parallel.host_ranks > 0 ? parallel.host_ranks : world_),
        &Config::parallel, &ParallelConfig::tensor);
    return candidates;
  }

  /// Resets values that resolve() derived from keys that may change. A given micro-batch that equals the derived one
  /// counts as derived.
  Config without_derived_values(Config config) const {
    const std::int64_t micro = std::exchange(config.batch.micro, 0);
    Config derived = config;
    resolve(derived, world_);
    if (derived.batch.micro != micro) config.batch.micro = micro;
    if (config.moe.group_limit == 0 && config.balance.device_groups == config.parallel.expert)
      config.balance.device_groups = 0;
    return config;
  }

  /// Resolves a configuration and returns the bytes of its fullest rank; infinity if it is invalid.
  double plan(Config& config) const {
    if (!contradictions(config, world_).empty()) return std::numeric_limits<double>::infinity();
    resolve(config, world_);
    if (reading_) return need_of(plan_inference(config, world_, *reading_));
    if (!can_plan_step(config, world_)) return std::numeric_limits<double>::infinity();
    return need_of(plan_mesh(config, world_, {},
                             {.microbatches = std::int64_t{2} * config.parallel.pipeline, .memory = available_}));
  }

  double need_of(const MeshPlan& plan) const { return process_ ? plan.peak_resident() : plan.peak_memory(); }

  template <class T>
  static std::vector<T> above(T own, std::vector<T> values) {
    std::erase_if(values, [&](T value) { return value <= own; });
    return values;
  }
  std::vector<int> divisors_above(int own, std::int64_t most) const { return above(own, divisors(world_, most)); }
  static std::vector<int> fewer(int number) {
    std::vector<int> all;
    while (number-- > 0) all.push_back(number);
    return all;
  }
  static std::vector<int> smaller_divisors(std::int64_t number) {
    std::vector<int> all = divisors(number, number - 1);
    std::ranges::reverse(all);
    return all;
  }
  static std::vector<std::int64_t> halves(std::int64_t number) {
    std::vector<std::int64_t> all;
    while ((number /= 2) > 0) all.push_back(number);
    return all;
  }

  int world_;
  std::optional<Reading> reading_;
  double available_;
  bool process_;  // the given plan has the memory of processes
  ChangedPlan given_;
};

}  // namespace

std::string shortage(const MeshPlan& plan, double available, const std::string& whose) {
  if (plan.peak_without_nccl() <= available) return {};
  return fmt::format("{}: {}", need_text(plan, available, whose), ChangeFinder(plan, available).text());
}

std::string nccl_shortage(const MeshPlan& plan, double available, const std::string& whose) {
  if (plan.peak_resident() <= available || plan.peak_without_nccl() > available) return {};
  const int channels = plan.config.parallel.nccl_channels;
  return fmt::format("rank {} may need {}, of which NCCL takes at most {}, but {} has only {}: if memory runs out, {}",
                     plan.fullest().rank, bytes_text(plan.peak_resident()), bytes_text(plan.fullest().memory.nccl),
                     whose, bytes_text(available),
                     channels > 1 ? fmt::format("set parallel.nccl_channels = {} (now {})", channels / 2, channels)
                                  : "set parallel.transport = staged, or change the mesh");
}

void require_fits(const MeshPlan& plan, double available, const std::string& whose, const std::string& before) {
  const std::string text = shortage(plan, available, whose);
  if (!text.empty()) fail(ExitCode::usage, "{}{}\n{}", before, text, error_table(plan));
}

}  // namespace lyceum
