#include "io/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>

#include "core/real_text.h"
#include "io/report/chart.h"
#include "io/text/console.h"
#include "io/text/table.h"
#include "io/text/utf8.h"

namespace lyceum {
namespace {

constexpr const char* unknown_cell = "-";
constexpr std::size_t most_runs_abreast = 6;  // runs beside each other on a terminal

std::string number_cell(const std::optional<double>& value, const char* format) {
  return value ? real_text(*value, format) : unknown_cell;
}
std::string count_cell(const std::optional<double>& value) { return value ? short_number(*value) : unknown_cell; }

std::string bytes_cell(const std::optional<double>& bytes) {
  return bytes && *bytes >= 0 && *bytes < 9e18 ? text_of_bytes(static_cast<std::int64_t>(*bytes)) : unknown_cell;
}

/// Returns the loss with its step, unless that is `expected`: "3.2101 (step 900)".
std::string valid_cell(const std::optional<ValidLoss>& valid, std::int64_t expected) {
  if (!valid) return unknown_cell;
  const std::string loss = real_text(valid->loss, ".4f");
  return valid->step == expected ? loss : fmt::format("{} (step {})", loss, grouped_number(valid->step));
}

/// Collects the rows of a table.
class Rows {
 public:
  explicit Rows(const Comparison& comparison) : runs_(comparison.runs) {}
  /// Begins a group of rows.
  void group() { first_ = true; }
  /// Adds a row, unless all its cells are missing.
  void add(std::string name, const std::function<std::string(const ComparedRun&)>& cell) {
    ComparisonRow row{.name = std::move(name), .cells = {}, .first = first_};
    for (const ComparedRun& run : runs_) row.cells.push_back(cell(run));
    if (std::ranges::all_of(row.cells, [](const std::string& text) { return text == unknown_cell; })) return;
    first_ = false;
    rows_.push_back(std::move(row));
  }
  std::vector<ComparisonRow> take() { return std::move(rows_); }

 private:
  const std::vector<ComparedRun>& runs_;
  std::vector<ComparisonRow> rows_;
  bool first_ = false;
};

/// Adds the losses at equal steps or equal tokens. `unit`: "step" or "tokens".
void add_milestones(const Comparison& comparison, std::vector<Milestone> RunSummary::*milestones, const char* unit,
                    Rows& rows) {
  const std::size_t count = comparison.runs.empty() ? 0 : (comparison.runs.front().summary.*milestones).size();
  const auto name_at = [&](std::size_t m) {
    const std::string number = grouped_number((comparison.runs.front().summary.*milestones)[m].at);
    return std::string(unit) == "step" ? "step " + number : number + " " + unit;
  };
  rows.group();
  for (std::size_t m = 0; m < count; ++m) {
    rows.add("loss at " + name_at(m),
             [&](const ComparedRun& run) { return number_cell((run.summary.*milestones)[m].loss, ".4f"); });
  }
  rows.group();
  for (std::size_t m = 0; m < count; ++m) {
    rows.add("validation loss by " + name_at(m), [&](const ComparedRun& run) {
      const Milestone& milestone = (run.summary.*milestones)[m];
      return valid_cell(milestone.valid, std::string(unit) == "step" ? milestone.at : -1);
    });
  }
}

void append_table(const std::vector<ComparisonRow>& rows, const Comparison& comparison, const char* heading,
                  std::string& text) {
  const std::size_t count = comparison.runs.size();
  for (std::size_t begin = 0; begin < count; begin += most_runs_abreast) {
    const std::size_t end = std::min(count, begin + most_runs_abreast);
    std::vector<std::string> headings{heading};
    for (std::size_t run = begin; run < end; ++run) headings.push_back(">" + comparison.runs[run].name);
    Table table(std::move(headings));
    for (const ComparisonRow& row : rows) {
      std::vector<std::string> cells{row.name};
      cells.insert(cells.end(), row.cells.begin() + static_cast<std::ptrdiff_t>(begin),
                   row.cells.begin() + static_cast<std::ptrdiff_t>(end));
      table.add(std::move(cells));
    }
    text += (text.empty() ? "" : "\n") + table.text();
  }
}

/// Returns the name of a run's folder, or of its file, with `above` folders above it.
std::string name_with_folders(const std::filesystem::path& file, int above) {
  const std::filesystem::path absolute = std::filesystem::absolute(file).lexically_normal();
  const bool usual = absolute.filename() == "metrics.jsonl" && absolute.has_parent_path();
  std::filesystem::path rest = usual ? absolute.parent_path() : absolute;
  std::string name = usual ? rest.filename().string() : rest.stem().string();
  for (int i = 0; i < above && rest.has_parent_path() && rest != rest.root_path(); ++i) {
    rest = rest.parent_path();
    if (!rest.filename().empty()) name = (rest.filename() / name).string();
  }
  return name.empty() ? absolute.string() : name;
}

}  // namespace

std::vector<ComparisonRow> result_rows(const Comparison& comparison) {
  Rows rows(comparison);
  using Run = const ComparedRun&;
  rows.add("steps", [](Run run) { return grouped_number(run.summary.steps); });
  rows.add("tokens", [](Run run) { return count_cell(run.summary.tokens); });
  rows.add("time in steps", [](Run run) {
    return run.summary.seconds ? human_duration(*run.summary.seconds) : std::string(unknown_cell);
  });
  add_milestones(comparison, &RunSummary::at_steps, "step", rows);
  add_milestones(comparison, &RunSummary::at_tokens, "tokens", rows);
  rows.group();
  rows.add("loss, last 5 % of the steps", [](Run run) { return number_cell(run.summary.loss, ".4f"); });
  rows.add("validation loss, last", [](Run run) { return valid_cell(run.summary.last_valid, run.summary.steps); });
  rows.add("validation loss, lowest", [](Run run) { return valid_cell(run.summary.lowest_valid, -1); });
  rows.add("gradient norm, last 5 %", [](Run run) { return number_cell(run.summary.grad_norm, ".4g"); });
  rows.group();
  rows.add("tokens/s, median", [](Run run) { return count_cell(run.summary.tokens_per_second); });
  rows.add("ms per step, median", [](Run run) { return number_cell(run.summary.step_ms, ".4g"); });
  rows.add("MFU, median", [](Run run) {
    return run.summary.mfu ? real_text(100 * *run.summary.mfu, ".1f") + " %" : std::string(unknown_cell);
  });
  rows.add("peak memory of rank 0", [](Run run) { return bytes_cell(run.summary.peak_bytes); });
  rows.add("peak of its process", [](Run run) { return bytes_cell(run.summary.resident_bytes); });
  rows.group();
  rows.add("MaxVio of the worst layer, last 5 %",
           [](Run run) { return number_cell(run.summary.max_violation, ".3f"); });
  rows.add("idle experts in a step, last 5 %", [](Run run) { return number_cell(run.summary.idle_experts, ".1f"); });
  rows.add("dead experts at the end", [](Run run) { return count_cell(run.summary.dead_experts); });
  rows.group();
  rows.add("steps skipped", [](Run run) { return count_cell(run.summary.skipped); });
  rows.add("rollbacks", [](Run run) { return count_cell(run.summary.rollbacks); });
  rows.add("steps with a number that is not finite", [](Run run) { return grouped_number(run.summary.not_finite); });
  rows.group();
  rows.add("mesh", [](Run run) { return run.mesh.empty() ? unknown_cell : run.mesh; });
  rows.add("program", [](Run run) { return run.program.empty() ? unknown_cell : run.program; });
  return rows.take();
}

std::vector<ComparisonRow> setting_rows(const Comparison& comparison) {
  std::vector<ComparisonRow> rows;
  for (const auto& [key, values] : comparison.settings) {
    ComparisonRow row{.name = key, .cells = {}};
    for (std::size_t run = 0; run < comparison.runs.size(); ++run) {
      row.cells.push_back(comparison.runs[run].configured ? excerpt(values[run], 500) : unknown_cell);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string comparison_text(const Comparison& comparison) {
  std::string text;
  append_table(result_rows(comparison), comparison, "run", text);
  const std::vector<ComparisonRow> settings = setting_rows(comparison);
  if (!settings.empty()) append_table(settings, comparison, "key", text);
  const auto known = std::ranges::count(comparison.runs, true, &ComparedRun::configured);
  if (known > 1 && settings.empty()) text += "\nThe known configurations are equal.\n";
  for (const ComparedRun& run : comparison.runs) {
    if (!run.configured)
      text += fmt::format("\n{}: no starts.jsonl beside {}: its configuration is unknown.\n", run.name, run.file);
  }
  return text;
}

std::vector<std::string> run_names(const std::vector<std::string>& files) {
  constexpr int most_above = 8;
  std::vector<std::string> names;
  for (int above = 0; above <= most_above; ++above) {
    names.clear();
    for (const std::string& file : files) names.push_back(name_with_folders(file, above));
    std::vector<std::string> sorted = names;
    std::ranges::sort(sorted);
    if (std::ranges::adjacent_find(sorted) == sorted.end()) return names;
  }
  std::map<std::string, int> uses;
  for (std::string& name : names) {
    if (const int use = ++uses[name]; use > 1) name += fmt::format(" #{}", use);
  }
  return names;
}

}  // namespace lyceum
