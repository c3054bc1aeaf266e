#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lyceum {

/// The origin of the token files of one prefix, in `prefix.json` next to them. Bits per byte need it:
/// nats per token · tokens / (bytes · ln 2).
struct TokenMeta {
  std::int64_t bytes = 0;  // of text
  std::int64_t documents = 0;
  std::int64_t tokens = 0;                // with an end-of-document token after each document
  std::optional<std::int64_t> trained{};  // of them, where prefix.mask says which
  std::string chat{};                     // name of the template of chats; empty: they are none
  std::int64_t vocab = 0;
  std::string tokenizer{};  // file name of the model
  std::string tokenizer_sha256{};
  bool operator==(const TokenMeta&) const = default;
};
std::string meta_path(const std::string& prefix);
/// Nothing when there is no such file (token files from elsewhere); a damaged one is a bad_input Error.
std::optional<TokenMeta> read_token_meta(const std::string& prefix);
void write_token_meta(const std::string& prefix, const TokenMeta& meta);

}  // namespace lyceum
