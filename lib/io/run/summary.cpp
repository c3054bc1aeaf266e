#include "io/run/summary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

namespace lyceum {
namespace {

constexpr double window_share = 0.05;  // of the steps or tokens before a milestone: the span of a mean

/// The keys that are read, and their indices.
struct Key {
  enum Index : std::size_t {
    loss,
    valid_loss,
    grad_norm,
    tokens,
    tokens_per_second,
    step_ms,
    mfu,
    load_imbalance,
    idle_experts,
    dead_experts,
    skipped,
    rollbacks,
    memory_peak_bytes,
    resident_peak_bytes,
    interval_ms,
    count
  };
  static constexpr std::array<std::string_view, count> names{"loss",
                                                             "valid_loss",
                                                             "grad_norm",
                                                             "tokens",
                                                             "tokens_per_second",
                                                             "step_ms",
                                                             "mfu",
                                                             "load_imbalance",
                                                             "idle_experts",
                                                             "dead_experts",
                                                             "skipped",
                                                             "rollbacks",
                                                             "memory_peak_bytes",
                                                             "resident_peak_bytes",
                                                             "interval_ms"};
};

/// Computes a Milestone from the steps in ascending order. Positions are steps or tokens.
class MilestoneMean {
 public:
  explicit MilestoneMean(std::int64_t at)
      : at_(at), from_(static_cast<double>(at) - std::max(1.0, window_share * static_cast<double>(at))) {}

  void add(double position, std::int64_t step, const std::optional<double>& loss, const std::optional<double>& valid) {
    if (!(position <= static_cast<double>(at_))) {
      reached_ = reached_ || position > static_cast<double>(at_);
      return;
    }
    reached_ = reached_ || position == static_cast<double>(at_);
    if (valid) valid_ = ValidLoss{step, *valid};
    if (!loss) return;
    last_ = loss;
    if (position > from_) mean_.add(*loss);
  }

  Milestone result() const {
    Milestone milestone{.at = at_};
    if (!reached_) return milestone;
    milestone.loss = mean_.value() ? mean_.value() : last_;
    milestone.valid = valid_;
    return milestone;
  }

 private:
  std::int64_t at_;
  double from_;  // the mean covers (from_, at_]
  bool reached_ = false;
  std::optional<double> last_;
  std::optional<ValidLoss> valid_;
  FiniteMean mean_;
};

std::vector<MilestoneMean> means_at(std::span<const std::int64_t> positions) {
  return {positions.begin(), positions.end()};
}

std::vector<Milestone> results(const std::vector<MilestoneMean>& means) {
  std::vector<Milestone> milestones;
  for (const MilestoneMean& mean : means) milestones.push_back(mean.result());
  return milestones;
}

/// Adds up the steps of one run.
class Summarizer {
 public:
  Summarizer(const MetricsExtent& extent, std::span<const std::int64_t> at_steps,
             std::span<const std::int64_t> at_tokens)
      : extent_(extent), at_steps_(means_at(at_steps)), at_tokens_(means_at(at_tokens)) {
    const double steps = static_cast<double>(extent.last_step) - static_cast<double>(extent.first_step) + 1;
    end_begins_ = static_cast<double>(extent.last_step) - std::max(1.0, window_share * steps);
  }

  void add(std::int64_t step, MetricValues values) {
    const auto number = [&](Key::Index key) { return values[key].value_or(std::numeric_limits<double>::quiet_NaN()); };
    // A gap in the durations or the tokens makes all later positions unknown. With run.metrics_every, a line has the
    // duration of all steps since the line before.
    seconds_ += number(values[Key::interval_ms] ? Key::interval_ms : Key::step_ms) / 1e3;
    place_ = {.step = step, .tokens = number(Key::tokens), .seconds = seconds_};
    for (MilestoneMean& mean : at_steps_)
      mean.add(static_cast<double>(step), step, values[Key::loss], values[Key::valid_loss]);
    for (MilestoneMean& mean : at_tokens_) mean.add(place_.tokens, step, values[Key::loss], values[Key::valid_loss]);
    add_valid(step, values[Key::valid_loss]);
    add_curve(CurveKind::loss, values[Key::loss]);
    add_curve(CurveKind::valid_loss, values[Key::valid_loss]);
    add_curve(CurveKind::grad_norm, values[Key::grad_norm]);
    add_curve(CurveKind::tokens_per_second, values[Key::tokens_per_second]);
    const bool routed = values[Key::load_imbalance] && !(*values[Key::load_imbalance] <= 0);  // it is 0 without experts
    const std::optional<double> violation = routed ? std::optional(*values[Key::load_imbalance] - 1) : std::nullopt;
    const std::optional<double> idle = routed ? values[Key::idle_experts] : std::nullopt;
    add_curve(CurveKind::max_violation, violation);
    add_curve(CurveKind::idle_experts, idle);
    speed_.add(number(Key::tokens_per_second));
    duration_.add(number(Key::step_ms));
    utilization_.add(number(Key::mfu));
    if (static_cast<double>(step) > end_begins_) {
      add_to(end_loss_, values[Key::loss]);
      add_to(end_norm_, values[Key::grad_norm]);
      add_to(end_violation_, violation);
      add_to(end_idle_, idle);
    }
    keep_last(result_.skipped, values[Key::skipped]);
    keep_last(result_.rollbacks, values[Key::rollbacks]);
    if (routed) keep_last(result_.dead_experts, values[Key::dead_experts]);
    if (const auto& peak = values[Key::memory_peak_bytes]) {
      result_.peak_bytes = std::max(result_.peak_bytes.value_or(0), *peak);
    }
    if (const auto& peak = values[Key::resident_peak_bytes]) {
      result_.resident_bytes = std::max(result_.resident_bytes.value_or(0), *peak);
    }
    const bool unsound = (values[Key::loss] && !std::isfinite(*values[Key::loss])) ||
                         (values[Key::grad_norm] && !std::isfinite(*values[Key::grad_norm]));
    if (unsound) ++result_.not_finite;
  }

  RunSummary result() {
    if (extent_.lines > 0) result_.steps = extent_.last_step;
    result_.tokens = extent_.tokens;
    if (extent_.lines > 0 && std::isfinite(seconds_)) result_.seconds = seconds_;
    result_.at_steps = results(at_steps_);
    result_.at_tokens = results(at_tokens_);
    result_.loss = end_loss_.value();
    result_.grad_norm = end_norm_.value();
    result_.max_violation = end_violation_.value();
    result_.idle_experts = end_idle_.value();
    result_.tokens_per_second = speed_.value();
    result_.step_ms = duration_.value();
    result_.mfu = utilization_.value();
    return std::move(result_);
  }

 private:
  void add_curve(CurveKind kind, const std::optional<double>& value) {
    if (!value) return;
    CurvePoint point = place_;
    point.value = *value;
    result_.curves.try_emplace(kind, extent_.first_step, extent_.last_step).first->second.add(point);
  }
  void add_valid(std::int64_t step, const std::optional<double>& valid) {
    if (!valid) return;
    result_.last_valid = ValidLoss{step, *valid};
    if (std::isfinite(*valid) && (!result_.lowest_valid || *valid < result_.lowest_valid->loss)) {
      result_.lowest_valid = result_.last_valid;
    }
  }
  static void add_to(FiniteMean& mean, const std::optional<double>& value) {
    if (value) mean.add(*value);
  }
  static void keep_last(std::optional<double>& last, const std::optional<double>& value) {
    if (value) last = value;
  }

  const MetricsExtent& extent_;
  std::vector<MilestoneMean> at_steps_, at_tokens_;
  double end_begins_ = 0;  // means of the end cover the steps above this
  double seconds_ = 0;
  CurvePoint place_;
  FiniteMean end_loss_, end_norm_, end_violation_, end_idle_;
  ApproximateMedian speed_, duration_, utilization_;
  RunSummary result_;
};

/// Returns an eighth, a quarter, half and the whole of a number.
std::vector<std::int64_t> fractions(std::optional<std::int64_t> whole) {
  std::vector<std::int64_t> positions;
  for (const std::int64_t divisor : {8, 4, 2, 1}) {
    const std::int64_t position = whole.value_or(0) / divisor;
    if (position > 0 && (positions.empty() || position > positions.back())) positions.push_back(position);
  }
  return positions;
}

}  // namespace

RunSummary summarize_run(const std::filesystem::path& file, const MetricsExtent& extent,
                         std::span<const std::int64_t> at_steps, std::span<const std::int64_t> at_tokens) {
  Summarizer summarizer(extent, at_steps, at_tokens);
  for_each_step(file, extent, Key::names,
                [&](std::int64_t step, MetricValues values) { summarizer.add(step, values); });
  return summarizer.result();
}

std::vector<std::int64_t> common_steps(std::span<const MetricsExtent> runs) {
  std::optional<std::int64_t> fewest;
  for (const MetricsExtent& run : runs) {
    if (run.lines > 0) fewest = std::min(fewest.value_or(run.last_step), run.last_step);
  }
  return fractions(fewest);
}

std::vector<std::int64_t> common_tokens(std::span<const MetricsExtent> runs) {
  std::optional<std::int64_t> fewest;
  for (const MetricsExtent& run : runs) {
    if (!run.tokens || !(*run.tokens >= 1 && *run.tokens < 9e18)) continue;
    const auto tokens = static_cast<std::int64_t>(*run.tokens);
    fewest = std::min(fewest.value_or(tokens), tokens);
  }
  return fractions(fewest);
}

}  // namespace lyceum
