#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

namespace lyceum {

/// 950ms is "<1s"; 42s, 3m05s, 1h02m, 2d03h.
std::string human_duration(double seconds);

/// What training reports about a step.
struct ProgressLine {
  std::int64_t step = 0, steps = 0;
  double loss = 0, grad_norm = 0, lr = 0;
  double step_seconds = 0, tokens_per_second = 0;
  std::optional<double> mfu;             // model FLOP/s over the stated peak, 0 … 1
  std::optional<double> eta_seconds;     // until `steps`
  std::optional<double> load_imbalance;  // busiest expert's load over the mean, worst layer
  std::int64_t skipped = 0;              // steps that the NaN guard skipped so far
};

/// The columns' names, aligned with progress_text of a run of that many steps.
std::string progress_header(std::int64_t steps);
std::string progress_text(const ProgressLine& line);
/// "[=======>      ] 53%  ETA 1h02m", at most `columns` wide (at least 20).
std::string progress_bar(const ProgressLine& line, int columns);

/// The console of a training run: aligned lines under a header; on a terminal the header comes again now and then and
/// a bar is under the last line.
class Console {
 public:
  /// `columns`: width of the terminal, 0 when `out` is none.
  Console(std::ostream& out, int columns) : out_(out), columns_(columns) {}
  /// Removes the bar.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void step(const ProgressLine& line);
  /// Only moves the bar: steps that are not logged.
  void tick(const ProgressLine& line);
  /// A line of words between the steps.
  void note(std::string_view text);

 private:
  void print(std::string_view text);

  std::ostream& out_;
  int columns_;
  std::int64_t lines_ = 0;
  std::string bar_;
};

/// Columns of the terminal that standard output is, 0 when it is none.
int terminal_columns();

}  // namespace lyceum
