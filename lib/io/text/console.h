#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

namespace lyceum {

/// Formats a duration in seconds with at most two units: "42s", "3m05s", "1h02m", "2d03h". Returns "<1s" for less than
/// a second, ">30y" from 10^9 seconds on, and "-" if it is negative or not finite.
std::string human_duration(double seconds);

/// The numbers of a training step that the console shows.
struct ProgressLine {
  std::int64_t step = 0, steps = 0;
  double loss = 0, grad_norm = 0, lr = 0;
  double step_seconds = 0, tokens_per_second = 0;
  std::optional<double> mfu;                  // model FLOP/s over the stated peak, 0 to 1
  std::optional<double> eta_seconds;          // time until step `steps`, in seconds
  std::optional<double> load_imbalance;       // load of the busiest expert over the mean, in the worst layer
  std::optional<double> rank_imbalance = {};  // FLOPs of the busiest expert rank over the mean, mean of the layers
  std::optional<double> mtp_loss = {};        // weighted loss of the modules of multi-token prediction
  std::int64_t skipped = 0;                   // steps without an update so far
  int stage = 0;                              // training stage; 0: the run has only one
};

/// Returns the names of the columns, aligned with progress_text() of a run of that many steps.
std::string progress_header(std::int64_t steps);
/// Returns the values of a step as a line without newline, aligned in columns. Unknown values are "-".
std::string progress_text(const ProgressLine& line);
/// Returns a progress bar, "[=======>      ] 53%  ETA 1h02m", at most `columns` wide. `columns` is at least 20.
std::string progress_bar(const ProgressLine& line, int columns);

/// Writes the console output of a training run: one aligned line per logged step under a header. On a terminal, it
/// repeats the header every 20 lines and keeps a progress bar below the last line. `out` must outlive it.
class Console {
 public:
  /// `columns`: the width of the terminal, or 0 if `out` is not a terminal.
  Console(std::ostream& out, int columns) : out_(out), columns_(columns) {}
  /// Erases the bar.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// Prints the line of a logged step, after the header if it is due.
  void step(const ProgressLine& line);
  /// Updates the bar only. For steps that are not logged.
  void tick(const ProgressLine& line);
  /// Prints a line of text between the steps. Control characters are escaped.
  void note(std::string_view text);

 private:
  void print(std::string_view text);

  std::ostream& out_;
  int columns_;
  std::int64_t lines_ = 0;
  std::string bar_;
};

/// Returns the width of the terminal that standard output is connected to, in columns; 0 if it is not a terminal.
int terminal_columns();

}  // namespace lyceum
