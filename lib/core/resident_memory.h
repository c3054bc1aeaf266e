#pragma once

#include <cstdint>
#include <filesystem>

namespace lyceum {

/// Returns the most physical memory that this process has had so far, in bytes, with pages of the program and of
/// libraries; 0 if the system does not say. `root`: the folder that has proc.
std::int64_t peak_resident_memory(const std::filesystem::path& root = "/");

}  // namespace lyceum
