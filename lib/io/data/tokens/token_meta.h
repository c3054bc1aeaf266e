#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lyceum {

/// The description of the token files of a prefix, stored in PREFIX.json. Bits per byte are computed with it: nats per
/// token · tokens / (bytes · ln 2).
struct TokenMeta {
  std::int64_t bytes = 0;  // of UTF-8 text
  std::int64_t documents = 0;
  std::int64_t tokens = 0;                // including an end-of-document token for each document
  std::optional<std::int64_t> trained{};  // number of trained tokens; set if there is a PREFIX.mask
  std::string chat{};                     // name of the chat template; empty if the documents are not chats
  std::int64_t vocab = 0;
  std::string tokenizer{};  // file name of the tokenizer
  std::string tokenizer_sha256{};
  bool operator==(const TokenMeta&) const = default;
};
/// Returns PREFIX.json.
std::string meta_path(const std::string& prefix);
/// Returns nothing if the file does not exist, as for token files of other programs. Throws a bad_input Error if it is
/// damaged.
std::optional<TokenMeta> read_token_meta(const std::string& prefix);
/// Returns the contents of PREFIX.json.
std::string token_meta_text(const TokenMeta& meta);
/// Writes PREFIX.json, replacing an existing one, for files that MegatronWriter did not describe.
void write_token_meta(const std::string& prefix, const TokenMeta& meta);

}  // namespace lyceum
