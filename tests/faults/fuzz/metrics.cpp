#include "io/run/metrics.h"

#include "support.h"

/// Reads metrics.jsonl, and opens it to continue it as a resumed run does.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  const std::filesystem::path file = fuzz::input_file("metrics.jsonl", fuzz::text_of(data, size));
  fuzz::refused([&] { read_metrics(file); });
  return fuzz::taken_or_refused([&] {
    constexpr std::int64_t step = 5;
    const MetricsLog log(file, step);
    fuzz::hold(log.resumed_at() <= step, "a log resumes after the requested step");
    for (const auto& [key, points] : read_metrics(file)) {
      for (const MetricPoint& point : points) fuzz::hold(point.step <= step, "a step after the requested one is kept");
    }
  });
}
