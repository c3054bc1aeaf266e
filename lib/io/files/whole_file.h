#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lyceum {

/// Returns the contents of a file. Throws a bad_input Error that names the file and the system's reason.
std::string read_whole_file(const std::filesystem::path& file);

/// Returns bytes [first, first + count) of a file; fewer if the file ends before. Throws as read_whole_file() does.
std::string read_part_of_file(const std::filesystem::path& file, std::int64_t first, std::int64_t count);

/// Calls replace_file() (io/files/atomic_file.h), and first creates the file's folder if it is missing. Throws a failed
/// Error that names the file and the system's reason.
void write_whole_file(const std::filesystem::path& file, std::string_view bytes);

}  // namespace lyceum
