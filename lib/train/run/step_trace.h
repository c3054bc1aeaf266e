#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "core/profile.h"
#include "io/run/trace_file.h"
#include "parallel/comm/clock_offset.h"
#include "parallel/comm/operation_trace.h"
#include "train/run/run_report.h"
#include "train/setup/run_setup.h"

namespace lyceum {

/// Records the steps run.trace_steps of a run and writes them to run.dir/trace (docs/monitoring.md). Does nothing, and
/// costs nothing, in other steps and between steps: a stream has a Profile only during a traced step.
class StepTrace {
 public:
  /// All references must outlive this.
  StepTrace(const Config& config, const RunSetup& setup, RunReport& report);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  /// Prints a note that nothing will be traced if the run continues after step `done` and all steps to trace are before
  /// that.
  void introduce(std::int64_t done) const;
  /// Collective over the world. Call before and after each step. `step`: its number, from 1 on. The call after the last
  /// traced step writes the files, as does one after which a rank has too many events. If they cannot be written, the
  /// report gets a warning, and the run continues.
  void before_step(std::int64_t step);
  void after_step();
  /// Collective. Writes the steps that have been traced, if the run ends, or returns to an earlier step, before the
  /// last one to trace.
  void finish();

 private:
  struct Step {
    std::int64_t number, begin, end;  // nanoseconds of this rank's clock
  };
  void start();
  /// Returns a time of this rank's clock in nanoseconds since the begin of the trace, on the clock of rank 0.
  std::int64_t common_time(double seconds) const;
  void add_steps(TraceEvents& events) const;
  void add_computation(TraceEvents& events) const;
  void add_operations(TraceEvents& events) const;
  void write(const TraceEvents& events);
  std::int64_t event_count() const;
  std::string clock_text() const;

  const Config& config_;
  const RunSetup& setup_;
  RunReport& report_;
  std::shared_ptr<Profile> profile_;          // from the first traced step to finish()
  std::optional<OperationTrace> operations_;  // likewise
  bool full_ = false;                         // a rank has too many events: no further steps are traced
  std::vector<Step> steps_;
  std::int64_t zero_ = 0;                               // begin of the trace, in nanoseconds on the clock of rank 0
  ClockOffset at_begin_, at_end_;                       // measured before the first and after the last step,
  std::int64_t measured_begin_ = 0, measured_end_ = 0;  // at these times, in nanoseconds of this rank's clock
  std::vector<ProfileSpan> spans_;
};

/// Returns the category of a span of computation: "pass" for F0, B1 … of the schedule, "recomputation", "operation",
/// "wait", "reduction", "exchange", "optimizer", "data", or "kernel".
std::string_view trace_category(std::string_view name);

}  // namespace lyceum
