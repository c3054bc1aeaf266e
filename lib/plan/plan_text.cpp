#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/error.h"
#include "io/text/table.h"
#include "model/routing/mixture.h"
#include "plan/mesh_plan.h"
#include "plan/text.h"

namespace lyceum {

std::string MeshPlan::text() const {
  const ParallelConfig& parallel = config.parallel;
  std::string text = mesh_shape(parallel).text(world);
  if (parallel.pipeline > 1 || parallel.schedule == ScheduleKind::gpipe) text += ", " + name_of(parallel.schedule);
  if (parallel.virtual_stages > 1) text += fmt::format(" x{}", parallel.virtual_stages);
  text += fmt::format(", zero {}, micro {}", parallel.zero, config.batch.micro);
  if (parallel.sequence) text += ", sequence";
  if (overlaps_batches(parallel)) text += ", overlap batches";
  if (config.model.recompute != Recompute::none) text += ", recompute " + name_of(config.model.recompute);
  return text;
}

std::string bytes_text(double bytes) {
  return bytes > 0 ? text_of_bytes(static_cast<std::int64_t>(std::min(bytes, 9e18))) : "-";
}

std::string memory_table(const MeshPlan& plan, std::size_t most) {
  const auto need = [&](std::size_t row) { return plan.ranks[row].memory.resident(); };
  std::vector<std::size_t> rows(plan.ranks.size());
  std::iota(rows.begin(), rows.end(), 0);
  if (most > 0 && rows.size() > most) {
    std::ranges::stable_sort(rows, std::greater<>(), need);
    rows.resize(most);
    std::ranges::sort(rows);
  }
  const bool process = plan.peak_resident() > plan.peak_memory(), nccl = plan.fullest().memory.nccl > 0;
  std::vector<std::string> headings{">row",       ">rank",      "blocks",       ">weights",
                                    ">gradients", ">optimizer", ">activations", ">buffers"};
  if (nccl) headings.push_back(">NCCL");
  headings.push_back(">all");
  if (process) headings.insert(headings.end(), {">process", ">resident"});
  Table table(headings);
  for (const std::size_t row : rows) {
    const RankPlan& rank = plan.ranks[row];
    std::string blocks;
    for (const Range& stage : rank.stages) {
      if (!blocks.empty()) blocks += ", ";
      blocks += stage.count == 1 ? fmt::format("{}", stage.first) : fmt::format("{}-{}", stage.first, stage.end() - 1);
    }
    const RankMemory& memory = rank.memory;
    std::vector<std::string> cells{
        fmt::format("{}", row),         fmt::format("{}", rank.rank), blocks,
        bytes_text(memory.weights),     bytes_text(memory.gradients), bytes_text(memory.optimizer),
        bytes_text(memory.activations), bytes_text(memory.buffers)};
    if (nccl) cells.push_back(bytes_text(memory.nccl));
    cells.push_back(bytes_text(memory.total()));
    if (process) cells.insert(cells.end(), {bytes_text(memory.process), bytes_text(memory.resident())});
    table.add(cells);
  }
  const std::size_t others = plan.ranks.size() - rows.size();
  return table.text() +
         (others > 0 ? fmt::format("and {} that do not need more than these\n", count_text(others, "row")) : "");
}

std::string error_table(const MeshPlan& plan) {
  std::string text = memory_table(plan, 8);
  text.pop_back();  // the final newline
  return text;
}

std::string need_text(const MeshPlan& plan, double available, const std::string& whose) {
  const RankPlan& rank = plan.fullest();
  const RankMemory& need = rank.memory;
  return fmt::format(
      "rank {} needs {} (weights {}, gradients {}, optimizer {}, activations {}, buffers {}{}{}), but {} has only {}",
      rank.rank, bytes_text(need.resident()), bytes_text(need.weights), bytes_text(need.gradients),
      bytes_text(need.optimizer), bytes_text(need.activations), bytes_text(need.buffers),
      need.nccl > 0 ? ", NCCL at most " + bytes_text(need.nccl) : "",
      need.process > 0 ? ", process " + bytes_text(need.process) : "", whose, bytes_text(available));
}

}  // namespace lyceum
