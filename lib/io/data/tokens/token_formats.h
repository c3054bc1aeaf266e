#pragma once

#include <memory>
#include <string>

#include "io/data/tokens/token_source.h"

namespace lyceum {

/// Opens the token files of a prefix, in the first format of the table in token_formats.cpp whose files exist, and the
/// mask. Throws the errors of TokenSource.
std::shared_ptr<const TokenSource> open_tokens(const std::string& prefix);
/// True if token files of this prefix exist. Checks only the file by which the format is recognised, such as
/// PREFIX.idx.
bool has_tokens(const std::string& prefix);
/// Returns the path of the file with the tokens of a prefix, for messages. The file need not exist.
std::string token_path(const std::string& prefix);
/// Returns the endings of the files of all formats, for messages: ".bin/.idx".
std::string token_endings();

}  // namespace lyceum
