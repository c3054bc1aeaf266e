#pragma once

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <string>

namespace lyceum {

/// Returns the numbers of a metrics record in Prometheus' text format 0.0.4. A key KEY becomes the gauge `lyceum_KEY`
/// with the label run="`run`"; a key NAME/SOURCE becomes the gauge `lyceum_NAME` with the additional label
/// source="SOURCE".
std::string prometheus_text(const nlohmann::ordered_json& record, const std::string& run);

/// Replaces `file` atomically for the textfile collector of a node exporter, which thus never reads an incomplete file.
/// Does not fsync, since the file need not survive a power failure. `record` and `run`: as in prometheus_text(). Throws
/// a failed Error that names the file.
void write_prometheus(const std::filesystem::path& file, const nlohmann::ordered_json& record, const std::string& run);

}  // namespace lyceum
