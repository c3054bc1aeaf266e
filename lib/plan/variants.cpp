#include "plan/variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "config/check.h"
#include "model/routing/mixture.h"
#include "plan/mesh_rank.h"

namespace lyceum {

namespace {

class Finder {
 public:
  Finder(const Config& config, int world, int node_ranks, const std::set<std::string>& fixed)
      : base_(config), world_(world), node_ranks_(node_ranks), fixed_(fixed) {}

  Variants find() {
    for (const ParallelConfig& axes : all_axes()) {
      Config config = base_;
      config.parallel = axes;
      for (const std::int64_t micro : micro_batch_sizes(axes)) {
        config.batch.micro = micro;
        add_schedules(config);
      }
    }
    if (!found_.possible.empty()) {
      found_.problems.clear();
    } else if (!batches_.empty()) {
      found_.problems = {
          fmt::format("batch.global = {} cannot be divided among the data-parallel ranks of any mesh: set "
                      "batch.global = {}",
                      base_.batch.global, nearest_batches())};
    }
    return std::move(found_);
  }

 private:
  bool given(const char* key) const { return fixed_.contains(key); }
  template <class T>
  std::vector<T> values(const char* key, T own, std::vector<T> all) const {
    return given(key) ? std::vector<T>{own} : all;
  }
  /// Returns ranks / parts; 1 if that is invalid, which contradictions() reports.
  static std::int64_t share(std::int64_t ranks, std::int64_t parts) {
    return parts > 0 ? std::max<std::int64_t>(ranks / parts, 1) : 1;
  }

  std::vector<ParallelConfig> all_axes() const {
    std::vector<ParallelConfig> all;
    for (const int pipeline : values("parallel.pipeline", base_.parallel.pipeline, divisors(world_, layers()))) {
      for (const int tensor : tensors(share(world_, pipeline))) {
        ParallelConfig axes = base_.parallel;
        axes.pipeline = pipeline;
        axes.tensor = tensor;
        axes.sequence = given("parallel.sequence") ? base_.parallel.sequence : tensor > 1;
        add_expert_axes(axes, all);
      }
    }
    return all;
  }

  void add_expert_axes(ParallelConfig axes, std::vector<ParallelConfig>& all) const {
    const std::int64_t stage = share(world_, axes.pipeline), routed = fewest_experts(base_);
    const std::int64_t experts = std::max<std::int64_t>(routed, 1);
    std::vector<int> sharers{1};
    if (axes.tensor > 1 && routed > 0) sharers.push_back(axes.tensor);
    for (const int sharer : values("parallel.expert_tensor", base_.parallel.expert_tensor, sharers)) {
      axes.expert_tensor = sharer;
      for (const int expert :
           values("parallel.expert", base_.parallel.expert, divisors(share(stage, sharer), experts))) {
        axes.expert = expert;
        // If experts cannot move, they stay, unless the search is asked for moves.
        const bool stay = expert == 1 || (base_.moe.group_limit > 0 && base_.balance.device_groups % expert == 0);
        axes.replace_every = stay && !given("parallel.replace_every") ? 0 : base_.parallel.replace_every;
        if (!given("parallel.replicas"))
          axes.replicas = std::min(base_.parallel.replicas, most_replicas(base_, expert));
        for (const Overlap overlap : overlaps(axes)) {
          axes.overlap = overlap;
          all.push_back(axes);
        }
      }
    }
  }

  /// Returns the values of parallel.overlap: a pipeline and ZeRO 3 exclude `batches`, and without
  /// expert ranks it has no effect.
  std::vector<Overlap> overlaps(const ParallelConfig& axes) const {
    std::vector<Overlap> all{Overlap::shared};
    const bool excluded = axes.pipeline > 1 || axes.expert == 1 || (given("parallel.zero") && axes.zero == 3);
    if (!excluded) all.push_back(Overlap::batches);
    return values("parallel.overlap", base_.parallel.overlap, all);
  }

  std::int64_t layers() const { return std::max<std::int64_t>(base_.model.layers, 1); }

  /// Returns the numbers of tensor ranks: powers of two within one machine, since tensor ranks communicate in every
  /// block.
  std::vector<int> tensors(std::int64_t stage) const {
    std::vector<int> all;
    for (const int d : divisors(node_ranks_, stage)) {
      if ((d & (d - 1)) == 0 && stage % d == 0) all.push_back(d);
    }
    return values("parallel.tensor", base_.parallel.tensor, all);
  }

  std::vector<std::int64_t> micro_batch_sizes(const ParallelConfig& axes) const {
    if (given("batch.micro") && base_.batch.micro != 0) return {base_.batch.micro};
    const std::int64_t data = share(world_, std::int64_t{axes.pipeline} * axes.tensor);
    std::vector<std::int64_t> all{1};
    for (const std::int64_t micro : {2, 4, 8}) {
      if (base_.batch.global / data % micro == 0) all.push_back(micro);
    }
    return all;
  }

  using ScheduleForm = std::pair<ScheduleKind, int>;  // parallel.schedule, parallel.virtual_stages

  /// Returns the numbers of stages per rank for the interleaved schedule: 2, 4 and 8, and up to 8 those that give every
  /// stage the same number of blocks. 2 even if there are too few blocks, so that the reason is reported.
  std::vector<int> virtual_stages(int pipeline) const {
    constexpr int most = 8;
    std::vector<int> all{2};
    for (int stages = 3; stages <= most && std::int64_t{pipeline} * stages <= layers(); ++stages) {
      if (stages == 4 || stages == most || layers() % (std::int64_t{pipeline} * stages) == 0) all.push_back(stages);
    }
    return all;
  }

  std::vector<ScheduleForm> schedules(const Config& config) const {
    const ParallelConfig& own = base_.parallel;
    const bool name = given("parallel.schedule"), chunks = given("parallel.virtual_stages");
    if (name && (chunks || own.schedule != ScheduleKind::interleaved)) {
      return {{own.schedule, chunks ? own.virtual_stages : 1}};
    }
    if (chunks && own.virtual_stages != 1) return {{ScheduleKind::interleaved, own.virtual_stages}};
    std::vector<ScheduleForm> all;
    if (!name) all.emplace_back(ScheduleKind::one_forward_one_backward, 1);
    if (!name && config.parallel.pipeline > 1) all.emplace_back(ScheduleKind::zero_bubble, 1);
    if (chunks || (!name && config.parallel.pipeline == 1)) return all;
    for (const int stages : virtual_stages(config.parallel.pipeline)) {
      all.emplace_back(ScheduleKind::interleaved, stages);
    }
    return all;
  }

  /// Adds `config` with each schedule that is possible. Schedules with the same number of stages per rank are valid or
  /// invalid together, so only one of them is checked. What contradicts one stage per rank contradicts more.
  void add_schedules(Config config) {
    std::map<int, bool> fine;
    for (const auto& [schedule, chunks] : schedules(config)) {
      config.parallel.schedule = schedule;
      config.parallel.virtual_stages = chunks;
      const auto [known, fresh] = fine.try_emplace(chunks, false);
      if (fresh) known->second = check(config);
      if (!known->second && chunks == 1) return;
      if (!known->second) continue;
      found_.possible.push_back(config);
      resolve(found_.possible.back(), world_);
    }
  }

  /// True if the configuration has no contradictions. Otherwise records its problems if they are the fewest so far.
  bool check(const Config& config) {
    std::vector<std::string> problems = contradictions(config, world_);
    if (problems.empty()) return true;
    try_other_batches(config);
    if (found_.problems.empty() || problems.size() < found_.problems.size()) found_.problems = std::move(problems);
    return false;
  }

  /// Records the values of batch.global nearest to the given one with which this variant is valid.
  void try_other_batches(Config config) {
    const std::int64_t own = base_.batch.global, axes = std::int64_t{config.parallel.pipeline} * config.parallel.tensor;
    if (axes < 1 || world_ % axes != 0 || own < 1) return;
    const bool passes = config.parallel.schedule == ScheduleKind::interleaved;
    const std::int64_t unit =
        world_ / axes * std::max<std::int64_t>(config.batch.micro, 1) * (passes ? config.parallel.pipeline : 1);
    for (const std::int64_t batch : {own / unit * unit, (own / unit + 1) * unit}) {
      config.batch.global = batch;
      if (batch > 0 && !batches_.contains(batch) && contradictions(config, world_).empty()) batches_.insert(batch);
    }
  }

  /// Returns the nearest valid values as text, "4608 or 4610".
  std::string nearest_batches() const {
    const auto above = batches_.upper_bound(base_.batch.global);
    std::string text = above == batches_.begin() ? "" : fmt::format("{}", *std::prev(above));
    if (above != batches_.end()) text += fmt::format("{}{}", text.empty() ? "" : " or ", *above);
    return text;
  }

  const Config& base_;
  int world_, node_ranks_;
  const std::set<std::string>& fixed_;
  Variants found_;
  std::set<std::int64_t> batches_;  // values of batch.global with which a variant is valid
};

}  // namespace

std::vector<int> divisors(std::int64_t number, std::int64_t most) {
  std::vector<int> all;
  for (std::int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    if (d <= most) all.push_back(static_cast<int>(d));
    if (d * d < number && number / d <= most) all.push_back(static_cast<int>(number / d));
  }
  std::ranges::sort(all);
  return all;
}

Config without_mesh(Config config) {
  config.parallel = {};
  config.batch.micro = 0;
  return config;
}

Variants find_variants(const Config& config, int world, int node_ranks, const std::set<std::string>& fixed) {
  Variants found = Finder(config, world, node_ranks, fixed).find();
  if (found.problems.empty()) return found;
  const std::vector<std::string> always = contradictions(without_mesh(config), 1);
  for (std::string& problem : found.problems) {
    if (std::ranges::find(always, problem) != always.end()) continue;
    problem = fmt::format("no valid mesh of {} ranks: {}", world, problem);
  }
  return found;
}

}  // namespace lyceum
