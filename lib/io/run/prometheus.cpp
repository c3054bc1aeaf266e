#include "io/run/prometheus.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <map>
#include <string_view>

#include "core/error.h"
#include "io/files/atomic_file.h"
#include "io/text/utf8.h"

namespace lyceum {
namespace {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : replace_invalid_utf8(text)) {
    if (c == '\\' || c == '"') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

std::string prometheus_text(const nlohmann::ordered_json& record, const std::string& run) {
  std::map<std::string, std::string> gauges;  // lines by gauge name: the lines of one gauge must be consecutive
  for (const auto& [key, value] : record.items()) {
    if (!value.is_number()) continue;
    const std::size_t slash = key.find('/');
    const std::string name = key.substr(0, slash);
    const std::string part = slash == std::string::npos
                                 ? ""
                                 : fmt::format(",{}=\"{}\"", name.starts_with("layer_") ? "layer" : "source",
                                               escaped(key.substr(slash + 1)));
    gauges[name] +=
        fmt::format("lyceum_{}{{run=\"{}\"{}}} {}\n", name, escaped(run), part, number_text(value.get<double>()));
  }
  std::string text;
  for (const auto& [name, lines] : gauges) text += fmt::format("# TYPE lyceum_{} gauge\n{}", name, lines);
  return text;
}

void write_prometheus(const std::filesystem::path& file, const nlohmann::ordered_json& record, const std::string& run) {
  const std::filesystem::path fresh = file.string() + ".new";
  write_file(fresh, prometheus_text(record, run), /*durable=*/false);
  rename_path(fresh, file);
}

}  // namespace lyceum
