#pragma once

#include <string>
#include <vector>

namespace lyceum {

/// Implements `lyceum tokenize --merge`: writes the token files of all `sources`, which are prefixes or "@FILE" (see
/// sources_of_file()), to those of `output`, and prints their sizes. Throws the errors of merge_tokens(), and usage
/// Errors if a file of sources cannot be used.
void merge_sources(const std::vector<std::string>& sources, const std::string& output);

}  // namespace lyceum
