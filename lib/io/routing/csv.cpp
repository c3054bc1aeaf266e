#include "io/routing/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <ostream>

#include "core/error.h"
#include "core/real_text.h"
#include "io/routing/moves.h"

namespace lyceum {
namespace {

/// Appends the lines of one record of a router. `layer` has that record at index `record`.
void append_lines(fmt::memory_buffer& lines, std::int64_t step, const RoutingHistory::Layer& layer, std::size_t record,
                  bool dropped) {
  const auto experts = static_cast<std::size_t>(layer.experts), choices = static_cast<std::size_t>(layer.top_k);
  for (std::size_t k = 0; k < choices; ++k) {
    for (std::size_t e = 0; e < experts; ++e) {
      const std::size_t index = (record * choices + k) * experts + e;
      const auto end = std::back_inserter(lines);
      fmt::format_to(end, "{},{},{},{},{},{},{},{},{}", step, layer.id.layer, k, e, layer.expert_sizes[e],
                     layer.expert_rank[e], layer.counts[index], real_text(layer.mean_probability[record * experts + e]),
                     layer.id.site == Site::attention ? "attention" : "ffn");
      if (dropped) fmt::format_to(end, ",{}", layer.drops ? layer.dropped[index] : 0);
      lines.push_back('\n');
    }
  }
}

bool selects(const CsvSelection& selection, std::int64_t layer) {
  const auto contains = [&](const auto& range) { return range.first <= layer && layer <= range.second; };
  return selection.layers.empty() || std::ranges::any_of(selection.layers, contains);
}

/// Returns the indices of the selected routers.
std::vector<std::size_t> selected_routers(const RoutingReader& log, const CsvSelection& selection) {
  std::vector<std::size_t> routers;
  for (std::size_t i = 0; i < log.routers().size(); ++i) {
    if (selects(selection, log.routers()[i].id.layer)) routers.push_back(i);
  }
  require_usage(!routers.empty() || selection.layers.empty(),
                "none of the selected layers has experts; the log has layers {} to {}",
                log.routers().empty() ? 0 : log.routers().front().id.layer,
                log.routers().empty() ? 0 : log.routers().back().id.layer);
  return routers;
}

}  // namespace

CsvSize write_routing_csv(const RoutingReader& log, const CsvSelection& selection,
                          const std::function<void(std::string_view)>& write) {
  const std::vector<std::size_t> routers = selected_routers(log, selection);
  const bool dropped = std::ranges::any_of(log.routers(), &RoutingHistory::Layer::drops);
  write("step,layer,choice,expert,expert_size,expert_rank,tokens,mean_probability,site");
  write(dropped ? ",dropped\n" : "\n");
  std::int64_t bytes = 1;  // of one record of the selected routers
  for (const std::size_t i : routers) bytes += log.routers()[i].experts * (1 + 2 * log.routers()[i].top_k) * 8;
  constexpr std::int64_t most_bytes = 32 << 20;
  const auto every = static_cast<std::size_t>(selection.every);
  // If records are left out, each written one is read by itself.
  const std::size_t together = every > 1 ? 1 : static_cast<std::size_t>(std::max<std::int64_t>(1, most_bytes / bytes));
  const std::size_t records = log.steps().size();
  RanksOfExperts ranks(log);
  CsvSize size{.records = 0, .routers = std::ssize(routers)};
  for (std::size_t first = records == 0 ? 0 : (records - 1) % every; first < records; first += together * every) {
    const RecordRange range{first, std::min(first + together, records)};
    std::vector<RoutingHistory::Layer> parts;
    for (const std::size_t i : routers) parts.push_back(log.read(i, range));
    for (std::size_t r = range.begin; r < range.end; ++r, ++size.records) {
      ranks.advance(log.steps()[r]);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        RoutingHistory::Layer& part = parts[i];
        part.expert_rank = ranks.of(routers[i]);
        fmt::memory_buffer lines;
        append_lines(lines, log.steps()[r], part, r - range.begin, dropped);
        write({lines.data(), lines.size()});
      }
    }
  }
  return size;
}

MovesCsvSize write_moves_csv(const RoutingReader& log, const CsvSelection& selection,
                             const std::function<void(std::string_view)>& write) {
  selected_routers(log, selection);  // throws if there are none
  constexpr std::size_t most_bytes = 1 << 20;
  write("step,layer,expert,from,to\n");
  const KnownMoves known = known_moves(log);
  MovesCsvSize size{.moves = 0, .unknown = static_cast<std::int64_t>(known.first)};
  fmt::memory_buffer lines;
  for_each_move(log, {known.first, known.end}, [&](const ExpertMove& move) {
    if (!selects(selection, move.layer)) return;
    fmt::format_to(std::back_inserter(lines), "{},{},{},{},{}\n", move.step, move.layer, move.expert, move.from,
                   move.to);
    ++size.moves;
    if (lines.size() < most_bytes) return;
    write({lines.data(), lines.size()});
    lines.clear();
  });
  write({lines.data(), lines.size()});
  return size;
}

void write_routing_csv(const RoutingReader& log, std::ostream& out) {
  write_routing_csv(log, {},
                    [&](std::string_view text) { out.write(text.data(), static_cast<std::streamsize>(text.size())); });
}

}  // namespace lyceum
