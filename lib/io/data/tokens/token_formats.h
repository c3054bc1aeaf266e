#pragma once

#include <memory>
#include <string>

#include "io/data/tokens/token_source.h"

namespace lyceum {

/// Opens the token files of a prefix, of the first format in the table whose files exist; errors as TokenSource's.
std::shared_ptr<const TokenSource> open_tokens(const std::string& prefix);
/// True if a prefix has token files.
bool has_tokens(const std::string& prefix);
/// Returns the file that holds the tokens of a prefix, for messages. It need not exist.
std::string token_path(const std::string& prefix);
/// Returns the endings of the files of all formats, for messages: ".bin/.idx".
std::string token_endings();

}  // namespace lyceum
