#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lyceum {

/// Returns the folders of the control groups of this process that limit `controller` ("memory", "cpu"), and of the
/// groups that contain them: those of version 2 and of version 1 [cgroups(7)]. Folders may not exist. `root`: the
/// folder that has proc and sys.
std::vector<std::filesystem::path> control_groups(const std::string& controller,
                                                  const std::filesystem::path& root = "/");
/// Returns the limit of a control group on memory, in bytes; infinity if it has none.
double memory_limit(const std::filesystem::path& group);

}  // namespace lyceum
