#pragma once

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <string>

namespace lyceum {

/// The numbers of a metrics record in Prometheus' text format 0.0.4: a gauge `lyceum_KEY` each, with the label
/// run="`run`"; of a key NAME/SOURCE the gauge `lyceum_NAME` with the label source="SOURCE", too.
std::string prometheus_text(const nlohmann::ordered_json& record, const std::string& run);

/// Replaces `file` for the textfile collector of a node exporter, which thus never reads half of one. It need not
/// survive a power failure, so nothing waits for the disk. Throws a failed Error that names the file.
void write_prometheus(const std::filesystem::path& file, const nlohmann::ordered_json& record, const std::string& run);

}  // namespace lyceum
