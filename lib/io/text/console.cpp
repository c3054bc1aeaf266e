#include "io/text/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ostream>

#include "core/printable.h"
#include "core/real_text.h"
#include "io/text/table.h"

namespace lyceum {
namespace {

constexpr std::int64_t lines_between_headers = 20;
constexpr std::string_view unknown = "-";

int step_width(std::int64_t steps) { return std::max(4, 2 * static_cast<int>(std::to_string(steps).size()) + 1); }

std::string eta_text(const ProgressLine& line) {
  return line.eta_seconds ? human_duration(*line.eta_seconds) : std::string(unknown);
}

/// Formats a number with a fixed number of decimals, so that the numbers of a column are aligned. A number of 99999 or
/// more, or one below the last decimal, is written with an exponent.
std::string decimals_text(double value, int decimals) {
  const double size = std::abs(value);
  const bool fits = size == 0 || (size < 99999 && size >= std::pow(10.0, -decimals)) || !std::isfinite(value);
  return real_text(value, fits ? fmt::format(".{}f", decimals) : fmt::format(".{}e", std::min(decimals, 2)));
}

}  // namespace

std::string human_duration(double seconds) {
  if (!(seconds >= 0) || !std::isfinite(seconds)) return std::string(unknown);
  if (seconds < 1) return "<1s";
  if (seconds >= 1e9) return ">30y";
  const auto whole = static_cast<std::int64_t>(seconds);
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole / 3600 % 24);
}

std::string progress_header(std::int64_t steps) {
  return fmt::format("{:>{}}  {:>9}  {:>9}  {:>9}  {:>7}  {:>8}  {:>6}  {:>9}  {:>7}", "step", step_width(steps),
                     "loss", "grad norm", "lr", "ms/step", "tok/s", "MFU", "imbalance", "ETA");
}

std::string progress_text(const ProgressLine& line) {
  const std::string mfu = line.mfu ? fmt::format("{:.1f}%", 100 * *line.mfu) : std::string(unknown);
  const std::string imbalance = line.load_imbalance ? real_text(*line.load_imbalance, ".2f") : std::string(unknown);
  std::string text = fmt::format(
      "{:>{}}  {:>9}  {:>9}  {:>9.2e}  {:>7}  {:>8}  {:>6}  {:>9}  {:>7}", fmt::format("{}/{}", line.step, line.steps),
      step_width(line.steps), real_text(line.loss, ".4f"), decimals_text(line.grad_norm, 3), line.lr,
      decimals_text(1e3 * line.step_seconds, 1), human_count(line.tokens_per_second), mfu, imbalance, eta_text(line));
  if (line.rank_imbalance) text += fmt::format("  ranks {}", real_text(*line.rank_imbalance, ".2f"));
  if (line.mtp_loss) text += fmt::format("  mtp {}", real_text(*line.mtp_loss, ".4f"));
  if (line.stage > 0) text += fmt::format("  stage {}", line.stage);
  if (line.skipped > 0) text += fmt::format("  {} skipped", line.skipped);
  return text;
}

std::string progress_bar(const ProgressLine& line, int columns) {
  const double done = line.steps > 0 ? std::clamp(double(line.step) / double(line.steps), 0.0, 1.0) : 0.0;
  const std::string words = fmt::format(" {:>3.0f}%  ETA {}", std::floor(100 * done), eta_text(line));
  const int width = std::clamp(columns - static_cast<int>(words.size()) - 2, 4, 60);
  const int filled = static_cast<int>(done * width);
  std::string bar(static_cast<std::size_t>(filled), '=');
  if (filled < width) bar += '>';
  return fmt::format("[{:<{}}]{}", bar, width, words);
}

Console::~Console() {
  if (!bar_.empty()) out_ << "\r\x1b[K" << std::flush;
}

void Console::step(const ProgressLine& line) {
  if (columns_ > 0) bar_ = progress_bar(line, columns_ - 1);
  const bool header = columns_ > 0 ? lines_ % lines_between_headers == 0 : lines_ == 0;
  ++lines_;
  print(header ? progress_header(line.steps) + "\n" + progress_text(line) : progress_text(line));
}

void Console::tick(const ProgressLine& line) {
  if (columns_ == 0) return;
  bar_ = progress_bar(line, columns_ - 1);
  out_ << "\r\x1b[K" << bar_ << std::flush;
}

void Console::note(std::string_view text) { print(printable(text)); }

void Console::print(std::string_view text) {
  if (columns_ > 0) out_ << "\r\x1b[K";
  out_ << text << '\n' << bar_ << std::flush;
}

int terminal_columns() {
  // mpirun gives its ranks a pseudo-terminal even if its own output is none. A rank therefore examines the output of
  // its parent, which is mpirun. On the other machines, the parent is mpirun's daemon, whose output is not a terminal.
  const bool launched = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
  const std::string path = fmt::format("/proc/{}/fd/1", launched ? getppid() : getpid());
  const int descriptor = open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return 0;
  winsize size{};
  const bool terminal = isatty(descriptor) && ioctl(descriptor, TIOCGWINSZ, &size) == 0;
  close(descriptor);
  if (!terminal) return 0;
  return size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace lyceum
