#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "core/error.h"
#include "io/text/table.h"
#include "model/routing/mixture.h"
#include "plan/mesh_plan.h"
#include "plan/place.h"
#include "plan/text.h"

namespace lyceum {

namespace {

/// Whether most of a rank's activations are logits, of more tokens than products need at a time to be fast.
bool logits_are_most(const MeshPlan& plan, const RankPlan& rank, std::int64_t enough_tokens) {
  const Config& config = plan.config;
  const bool has_head =
      std::ranges::any_of(rank.stages, [&](const Range& blocks) { return blocks.end() == config.model.layers; });
  const Place place = Place::of(config.parallel, plan.world, rank.rank);
  const std::int64_t tokens = token_share(config, place).tokens, chunk = config.model.loss_chunk;
  const std::int64_t at_a_time = chunk == 0 ? tokens : std::min(chunk, tokens);
  const double row = number(config.model.vocab * element_bytes(config)) / place.size(Axis::tensor);
  return has_head && at_a_time > enough_tokens && 2 * number(at_a_time) * row > rank.memory.activations;
}

/// What would make the most of a rank's need smaller, given what is already done.
std::vector<std::string> ways_out(const MeshPlan& plan, const RankPlan& rank) {
  const Config& config = plan.config;
  const ParallelConfig& parallel = config.parallel;
  const RankMemory& need = rank.memory;
  std::vector<std::string> ways;
  const double state = need.weights + need.gradients + need.optimizer;
  const bool copies = mesh_shape(parallel).data(plan.world) > 1;
  const auto activations = [&] {
    if (config.model.recompute != Recompute::full) ways.push_back("set model.recompute = full");
    if (config.batch.micro > 1) ways.push_back(fmt::format("lower batch.micro (it is {})", config.batch.micro));
  };
  if (need.activations > state) {
    constexpr std::int64_t chunk = 1024;
    if (logits_are_most(plan, rank, chunk)) ways.push_back(fmt::format("set model.loss_chunk = {}", chunk));
    if (parallel.schedule == ScheduleKind::gpipe)
      ways.push_back("set parallel.schedule = 1f1b, which keeps fewer micro-batches");
    activations();
    ways.push_back("lower batch.seq_len or model.vocab");
  }
  if (copies && parallel.zero < 3) ways.push_back(fmt::format("raise parallel.zero (it is {})", parallel.zero));
  if (fewest_experts(config) > parallel.expert)
    ways.push_back(fmt::format("raise parallel.expert (it is {})", parallel.expert));
  if (config.model.layers > parallel.pipeline)
    ways.push_back(fmt::format("raise parallel.pipeline (it is {})", parallel.pipeline));
  if (config.model.heads > parallel.tensor)
    ways.push_back(fmt::format("raise parallel.tensor (it is {})", parallel.tensor));
  if (need.activations <= state) activations();
  ways.push_back("make the model smaller (model.hidden, model.layers, model.vocab)");
  ways.push_back("use more machines");
  ways.resize(2);
  return ways;
}

const RankPlan& fullest_rank(const MeshPlan& plan) {
  return *std::ranges::max_element(plan.ranks, {}, [](const RankPlan& rank) { return rank.memory.total(); });
}

}  // namespace

std::string MeshPlan::text() const {
  const ParallelConfig& parallel = config.parallel;
  std::string text = mesh_shape(parallel).text(world);
  if (parallel.pipeline > 1 || parallel.schedule == ScheduleKind::gpipe) text += ", " + name_of(parallel.schedule);
  if (parallel.virtual_stages > 1) text += fmt::format(" x{}", parallel.virtual_stages);
  text += fmt::format(", zero {}, micro {}", parallel.zero, config.batch.micro);
  if (parallel.sequence) text += ", sequence";
  if (config.model.recompute != Recompute::none) text += ", recompute " + name_of(config.model.recompute);
  return text;
}

std::string bytes_text(double bytes) {
  return bytes > 0 ? text_of_bytes(static_cast<std::int64_t>(std::min(bytes, 9e18))) : "-";
}

std::string memory_table(const MeshPlan& plan, std::size_t most) {
  const auto total = [&](std::size_t row) { return plan.ranks[row].memory.total(); };
  std::vector<std::size_t> rows(plan.ranks.size());
  std::iota(rows.begin(), rows.end(), 0);
  if (most > 0 && rows.size() > most) {
    std::ranges::stable_sort(rows, std::greater<>(), total);
    rows.resize(most);
    std::ranges::sort(rows);
  }
  Table table({">row", ">rank", "blocks", ">weights", ">gradients", ">optimizer", ">activations", ">buffers", ">all"});
  for (const std::size_t row : rows) {
    const RankPlan& rank = plan.ranks[row];
    std::string blocks;
    for (const Range& stage : rank.stages) {
      if (!blocks.empty()) blocks += ", ";
      blocks += stage.count == 1 ? fmt::format("{}", stage.first) : fmt::format("{}-{}", stage.first, stage.end() - 1);
    }
    const RankMemory& memory = rank.memory;
    table.add({fmt::format("{}", row), fmt::format("{}", rank.rank), blocks, bytes_text(memory.weights),
               bytes_text(memory.gradients), bytes_text(memory.optimizer), bytes_text(memory.activations),
               bytes_text(memory.buffers), bytes_text(memory.total())});
  }
  const std::size_t others = plan.ranks.size() - rows.size();
  return table.text() + (others > 0 ? fmt::format("and {} that need no more\n", count_text(others, "row")) : "");
}

std::string error_table(const MeshPlan& plan) {
  std::string text = memory_table(plan, 8);
  text.pop_back();  // the line's end
  return text;
}

std::string need_text(const MeshPlan& plan, double available, const std::string& whose) {
  const RankPlan& rank = fullest_rank(plan);
  const RankMemory& need = rank.memory;
  return fmt::format(
      "rank {} needs {} of the {} that {} has (weights {}, gradients {}, optimizer {}, activations {}, buffers {})",
      rank.rank, bytes_text(need.total()), bytes_text(available), whose, bytes_text(need.weights),
      bytes_text(need.gradients), bytes_text(need.optimizer), bytes_text(need.activations), bytes_text(need.buffers));
}

std::string shortage(const MeshPlan& plan, double available, const std::string& whose) {
  const RankPlan& rank = fullest_rank(plan);
  if (rank.memory.total() <= available) return {};
  const std::vector<std::string> ways = ways_out(plan, rank);
  return fmt::format("{}: {}, or {}", need_text(plan, available, whose), ways[0], ways[1]);
}

void require_fits(const MeshPlan& plan, double available, const std::string& whose) {
  const std::string text = shortage(plan, available, whose);
  if (!text.empty()) fail(ExitCode::usage, "{}\n{}", text, error_table(plan));
}

}  // namespace lyceum
