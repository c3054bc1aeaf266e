#include "io/data/tokens/token_meta.h"

#include <nlohmann/json.hpp>

#include <filesystem>

#include "core/error.h"
#include "io/files/whole_file.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

namespace lyceum {

std::string meta_path(const std::string& prefix) { return prefix + ".json"; }

std::optional<TokenMeta> read_token_meta(const std::string& prefix) {
  const std::string path = meta_path(prefix);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  // Files that Lyceum wrote are shorter. The beginning of a longer file does not parse.
  constexpr std::int64_t most_bytes = 1 << 20;
  const std::string text = read_part_of_file(path, 0, most_bytes);
  try {
    const auto json = parse_json<nlohmann::json>(text);
    TokenMeta meta{.bytes = Exact(json.at("bytes")),
                   .documents = Exact(json.at("documents")),
                   .tokens = Exact(json.at("tokens")),
                   .vocab = Exact(json.at("vocab")),
                   .tokenizer = json.at("tokenizer"),
                   .tokenizer_sha256 = json.at("tokenizer_sha256")};
    if (json.contains("trained")) meta.trained = Exact(json.at("trained"));
    if (json.contains("chat")) meta.chat = json.at("chat");
    return meta;
  } catch (const std::exception& problem) {
    fail(ExitCode::bad_input, "{} is damaged: {}; remove it, or tokenise again", path, excerpt(problem.what(), 200));
  }
}

std::string token_meta_text(const TokenMeta& meta) {
  nlohmann::ordered_json json{{"bytes", meta.bytes},         {"documents", meta.documents},
                              {"tokens", meta.tokens},       {"vocab", meta.vocab},
                              {"tokenizer", meta.tokenizer}, {"tokenizer_sha256", meta.tokenizer_sha256}};
  if (meta.trained) json["trained"] = *meta.trained;
  if (!meta.chat.empty()) json["chat"] = meta.chat;
  return json_text(json, 2) + "\n";
}

void write_token_meta(const std::string& prefix, const TokenMeta& meta) {
  write_whole_file(meta_path(prefix), token_meta_text(meta));
}

}  // namespace lyceum
