#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lyceum {

/// A file's bytes. Throws a bad_input Error that names the file and the system's reason.
std::string read_whole_file(const std::filesystem::path& file);

/// Bytes [first, first + count) of a file, fewer when it ends before. Same errors.
std::string read_part_of_file(const std::filesystem::path& file, std::int64_t first, std::int64_t count);

/// Makes or replaces a file so that its name never shows a part of it; the folder is made when missing.
/// Throws an Error that names the file and the system's reason.
void write_whole_file(const std::filesystem::path& file, std::string_view bytes);

}  // namespace lyceum
