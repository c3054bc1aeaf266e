#include "io/run/metrics.h"

#include <array>
#include <optional>
#include <string_view>

#include "io/run/metric_lines.h"
#include "io/run/summary.h"
#include "support.h"

/// Reads metrics.jsonl, and opens it to continue it as a resumed run does.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  const std::filesystem::path file = fuzz::input_file("metrics.jsonl", fuzz::text_of(data, size));
  fuzz::refused([&] { read_metrics(file); });
  fuzz::refused([&] {
    constexpr std::array<std::int64_t, 2> positions{1, 5};
    constexpr std::array<std::string_view, 1> keys{"loss"};
    const MetricsExtent extent = measure_metrics(file);
    std::optional<std::int64_t> last;
    for_each_step(file, extent, keys, [&](std::int64_t step, MetricValues) {
      fuzz::hold(!last || *last < step, "steps do not ascend");
      fuzz::hold(extent.first_step <= step && step <= extent.last_step, "a step is outside of the extent");
      last = step;
    });
    summarize_run(file, extent, positions, positions);
  });
  return fuzz::taken_or_refused([&] {
    constexpr std::int64_t step = 5;
    const MetricsLog log(file, step);
    fuzz::hold(log.resumed_at() <= step, "a log resumes after the requested step");
    for (const auto& [key, points] : read_metrics(file)) {
      for (const MetricPoint& point : points) fuzz::hold(point.step <= step, "a step after the requested one is kept");
    }
  });
}
