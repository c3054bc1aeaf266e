#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/routing/history.h"

namespace lyceum {

/// A span of records [begin, end) in which no token chose an expert although an even load would have given it
/// `starving_tokens` or more. By chance this happens to an expert with a fair share with probability e^-100.
struct StarvedSpan {
  std::size_t expert = 0, begin = 0, end = 0;
};
/// The expected number of tokens without which an expert counts as starved.
constexpr std::int64_t starving_tokens = 100;

/// A problem of a run that its user should see.
struct Alarm {
  std::int64_t step = 0;              // at which it began
  std::optional<MixtureId> router{};  // nothing if it concerns the whole model
  bool over = false;                  // true if the newest record no longer has the problem
  std::string text;                   // without the step and the layer
};

/// Finds the problems of one router while its records are read from the first to the last. Keeps a few numbers of each
/// record, but not its counts.
class RouterWatch {
 public:
  /// `steps`: of all records of the log, which must outlive this object.
  RouterWatch(const RoutingHistory::Layer& router, const std::vector<std::int64_t>& steps);
  /// Adds the next record: number `record` of `layer`, whose load over all choices is `tokens` [experts].
  void add(const RoutingHistory::Layer& layer, std::size_t record, const std::vector<std::int64_t>& tokens);
  /// Returns the starved spans, sorted by expert, then by time. Experts that are always active have none. Call it once,
  /// after the last record.
  std::vector<StarvedSpan> starved();
  /// Returns the alarms of this router, given the result of starved(). There are two kinds:
  /// - Starved experts (see StarvedSpan).
  /// - Uneven records: MaxVio is above alarming_violation(), or at least half of the experts are idle in a step without
  ///   being starved. Both numbers are means over the record's steps, if the log has them and an even load gives each
  ///   expert at least `least_judged_tokens` per step. Otherwise only MaxVio of the sum of the record's steps is
  ///   judged.
  std::vector<Alarm> alarms(const std::vector<StarvedSpan>& starved) const;

 private:
  /// How unevenly one record is loaded.
  struct Unevenness {
    double violation = 0;   // mean MaxVio of single steps if `of_steps`, else `sum`
    bool of_steps = false;  // true if the log has single steps with enough tokens to judge them
    float idle = 0;         // if `of_steps`: mean number of experts that are idle in a step
    double sum = 0;         // MaxVio of the sum of the record's steps
  };
  /// Ends the span without tokens of an expert at record `end`.
  void end_span(std::size_t expert, std::size_t end);
  void add_starved_alarms(const std::vector<StarvedSpan>& starved, std::vector<Alarm>& alarms) const;
  void add_uneven_alarm(const std::vector<StarvedSpan>& starved, std::vector<Alarm>& alarms) const;

  RoutingHistory::Layer router_;
  const std::vector<std::int64_t>& steps_;
  std::vector<Unevenness> records_;
  std::vector<double> passed_by_;   // [experts]: tokens an even load would have given the expert since it had some
  std::vector<std::size_t> begin_;  // [experts]: the first record since the expert had tokens
  std::vector<StarvedSpan> spans_;
};

/// Sorts alarms: current ones first, then by step and layer.
void sort_alarms(std::vector<Alarm>& alarms);

constexpr double least_judged_tokens = 10;  // with fewer, a load is uneven by chance

/// Returns the MaxVio above which a load is an alarm: 4, or half of the largest possible value if a layer has few
/// experts. If it is 0, because tokens choose all experts, there are no alarms.
double alarming_violation(const RoutingHistory::Layer& layer);

/// Returns the last step at which an expert had tokens if it is starved from record `begin` on: "step 4,000", or "the
/// start". `steps`: of all records.
std::string starved_since(const std::vector<std::int64_t>& steps, std::size_t begin);

}  // namespace lyceum
