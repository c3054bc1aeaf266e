#include "parallel/pipeline/schedule_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace lyceum {

std::string text(const Action& action, const PipelineShape& shape) {
  constexpr std::array names{"F", "B", "I", "W", "SF", "RF", "SB", "RB"};
  const char* name = names[static_cast<std::size_t>(action.kind)];
  if (shape.virtual_stages == 1) return fmt::format("{}{}", name, action.microbatch);
  return fmt::format("{}{}{}", action.stage, name, action.microbatch);
}

std::string text(std::span<const Action> program, const PipelineShape& shape) {
  std::string line;
  for (const Action& action : program) {
    if (!line.empty()) line += ' ';
    line += text(action, shape);
  }
  return line;
}

std::string text(const Schedule& schedule) {
  const auto digits = std::to_string(schedule.programs.size() - 1).size();
  std::string lines;
  for (std::size_t rank = 0; rank < schedule.programs.size(); ++rank) {
    lines += fmt::format("rank {:>{}}: {}\n", rank, digits, text(schedule.programs[rank], schedule.shape));
  }
  return lines;
}

std::string excerpt(const Schedule& schedule, int rank, std::size_t index) {
  constexpr std::size_t around = 6, ranks_around = 4;
  const auto centre = static_cast<std::size_t>(rank);
  const std::size_t first = index > around ? index - around : 0, last = index + around;
  const std::size_t top = centre > ranks_around ? centre - ranks_around : 0;
  const std::size_t bottom = std::min(schedule.programs.size(), centre + ranks_around + 1);

  // One cell per action; all cells have the width of the widest one.
  std::vector<std::vector<std::string>> rows;
  std::size_t width = 0;
  for (std::size_t r = top; r < bottom; ++r) {
    std::vector<std::string>& row = rows.emplace_back();
    const Program& program = schedule.programs[r];
    for (std::size_t i = first; i <= last && i < program.size(); ++i) {
      const std::string cell = text(program[i], schedule.shape);
      row.push_back(r == centre && i == index ? fmt::format("[{}]", cell) : fmt::format(" {} ", cell));
      width = std::max(width, row.back().size());
    }
    if (r == centre && index >= program.size()) row.emplace_back("[end]");
  }
  std::string lines;
  for (std::size_t r = top; r < bottom; ++r) {
    lines += fmt::format("\nrank {:>{}}: {}", r, std::to_string(bottom - 1).size(), first > 0 ? "… " : "");
    for (const std::string& cell : rows[r - top]) lines += fmt::format("{:<{}}", cell, width);
    if (last + 1 < schedule.programs[r].size()) lines += "…";
    lines.erase(lines.find_last_not_of(' ') + 1);
  }
  return lines;
}

}  // namespace lyceum
