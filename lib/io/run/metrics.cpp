#include "io/run/metrics.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>

#include "core/error.h"
#include "io/files/open_regular.h"
#include "io/run/metric_lines.h"
#include "io/text/json.h"

namespace lyceum {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Calls use(record, offset of the end of its line in bytes) for each complete line, until it returns false, see
/// for_each_line(). Throws a bad_input Error if a line is damaged.
void for_each_record(const std::filesystem::path& file,
                     const std::function<bool(const OrderedJson&, std::int64_t)>& use) {
  for_each_line(file, [&](const std::string& line, std::int64_t end, std::int64_t number) {
    const OrderedJson record = parse_json<OrderedJson>(line, /*allow_exceptions=*/false);
    if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer()) {
      fail_damaged_line(file, number);
    }
    return use(record, end);
  });
}

std::string line_of(const OrderedJson& record) {
  OrderedJson line = record;
  std::vector<std::string> nonfinite;
  for (auto& [key, value] : line.items()) {
    if (value.is_number_float() && !std::isfinite(value.get<double>())) nonfinite.push_back(key);
  }
  for (const std::string& key : nonfinite) line[key] = nullptr;
  if (!nonfinite.empty()) line["nonfinite"] = nonfinite;
  return json_text(line) + "\n";  // numbers have the shortest digits that are read as the same double
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& file, std::int64_t resume_step) {
  std::int64_t kept = 0;  // size of the kept lines in bytes
  if (std::filesystem::exists(file)) {
    const auto keep = [&](const OrderedJson& record, std::int64_t bytes) {
      const auto step = record["step"].get<std::int64_t>();
      if (step > resume_step) return false;
      kept = bytes;
      resumed_at_ = step;
      return true;
    };
    if (resume_step >= 0) for_each_record(file, keep);
    std::ifstream in = open_to_read(file);
    in.seekg(kept);
    for (std::string line; std::getline(in, line);) ++lines_cut_;
  }
  lines_.emplace(file, kept);
}

void MetricsLog::append(const OrderedJson& record) {
  require(record.is_object() && record.contains("step") && record["step"].is_number_integer(),
          "a metrics record needs an integer \"step\"");
  lines_->append(line_of(record));
}

Metrics read_metrics(const std::filesystem::path& file) {
  Metrics metrics;
  std::int64_t last = -1;
  for_each_record(file, [&](const OrderedJson& record, std::int64_t) {
    const auto step = record["step"].get<std::int64_t>();
    if (step <= last) {  // the lines from this step on are superseded
      for (auto& [key, points] : metrics) {
        std::erase_if(points, [&](const MetricPoint& point) { return point.step >= step; });
      }
      std::erase_if(metrics, [](const auto& metric) { return metric.second.empty(); });
    }
    last = step;
    for (const auto& [key, value] : record.items()) {
      if (value.is_number() && key != "step") metrics[key].push_back({step, value.get<double>()});
    }
    if (const auto nonfinite = record.find("nonfinite"); nonfinite != record.end() && nonfinite->is_array()) {
      for (const OrderedJson& key : *nonfinite) {
        if (key.is_string()) {
          metrics[key.get<std::string>()].push_back({step, std::numeric_limits<double>::quiet_NaN()});
        }
      }
    }
    return true;
  });
  return metrics;
}

}  // namespace lyceum
