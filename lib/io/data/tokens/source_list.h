#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace lyceum {

/// Limits of a file with sources. The sources become the value of a key, which every rank parses and checkpoints
/// record.
constexpr std::int64_t most_listed_sources = 4096, most_source_list_bytes = 1 << 20;

/// Reads a file that lists token sources, one per line: "PREFIX" or "WEIGHT PREFIX". Either all or no sources have a
/// weight. Empty lines and text from a `#` on, at the beginning of a line or after a space, are ignored. Returns the
/// value that names these sources, as data_sources() (tokens/data_sources.h) accepts it. Prefixes are relative to the
/// working directory, not to the file. Throws a usage Error that names the file and the line.
std::string sources_of_file(const std::filesystem::path& file);

}  // namespace lyceum
