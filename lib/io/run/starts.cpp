#include "io/run/starts.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <chrono>
#include <fstream>

#include "core/error.h"
#include "io/files/open_regular.h"
#include "io/files/system_reason.h"
#include "io/run/metrics.h"
#include "io/text/json.h"

namespace lyceum {

void record_start(const std::filesystem::path& file, const RunStart& start) {
  MetricsLog log(file, start.step > 0 ? start.step : -1);
  log.append({{"step", start.step},
              {"date", start.date},
              {"program", start.program},
              {"mesh", start.mesh},
              {"config", start.config}});
  log.sync();
}

std::vector<RunStart> read_starts(const std::filesystem::path& file) {
  std::ifstream in = open_to_read(file);
  require_input(in.good(), "{}: cannot be opened: {}", file.string(), system_reason(errno));
  std::vector<RunStart> starts;
  for (std::string line; std::getline(in, line) && !in.eof();) {  // an incomplete last line is skipped
    try {
      const nlohmann::json start = parse_json<nlohmann::json>(line);
      starts.push_back({.step = Exact(start.at("step")),
                        .date = start.at("date"),
                        .program = start.at("program"),
                        .mesh = start.at("mesh"),
                        .config = start.at("config")});
    } catch (const std::exception&) {
      fail(ExitCode::bad_input,
           "{}: line {} is damaged, since it does not describe a start of a run: remove the line or the file",
           file.string(), starts.size() + 1);
    }
  }
  return starts;
}

std::string utc_date() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

}  // namespace lyceum
