#include "io/data/tokenizer/json/subword_model.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/error.h"
#include "io/data/tokenizer/json/bpe.h"
#include "io/data/tokenizer/json/unigram.h"
#include "io/text/byte_token.h"
#include "io/text/utf8.h"

namespace lyceum {

void Vocabulary::add(std::string token, std::int64_t id) {
  require_input(id >= 0 && id < most_ids, "the token {} has the id {}: ids are 0 to {}", excerpt(token), id,
                most_ids - 1);
  require_input(!contains(id), "two tokens have the id {}", id);
  require_input(ids_.emplace(token, static_cast<std::int32_t>(id)).second, "the token {} occurs twice", excerpt(token));
  const auto at = static_cast<std::size_t>(id);
  if (at >= tokens_.size()) {
    tokens_.resize(at + 1);
    present_.resize(at + 1);
  }
  tokens_[at] = std::move(token);
  present_[at] = true;
}

std::optional<std::int32_t> Vocabulary::id(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

bool Vocabulary::contains(std::int64_t id) const {
  return id >= 0 && id < static_cast<std::int64_t>(present_.size()) && present_[static_cast<std::size_t>(id)];
}

std::optional<std::vector<std::int32_t>> SubwordModel::byte_tokens(std::string_view text) const {
  std::vector<std::int32_t> ids;
  for (const char c : text) {
    const std::optional<std::int32_t> id = vocabulary_.id(byte_token(static_cast<std::uint8_t>(c)));
    if (!id) return std::nullopt;
    ids.push_back(*id);
  }
  return ids;
}

std::size_t SubwordModel::length_at(std::string_view text, std::int32_t id) const {
  const std::string& token = vocabulary_.tokens()[static_cast<std::size_t>(id)];
  if (text.starts_with(token)) return token.size();
  const std::optional<std::uint8_t> byte = byte_of_token(token);
  return byte && !text.empty() && static_cast<std::uint8_t>(text.front()) == *byte ? 1 : 0;
}

std::vector<std::size_t> SubwordModel::ends_of(std::string_view word, std::span<const std::int32_t> ids) const {
  std::vector<std::size_t> ends;
  std::size_t at = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto begins = [&](std::size_t j) { return j < ids.size() && length_at(word.substr(at), ids[j]) > 0; };
    // A character without a token was dropped or is part of an unknown token.
    while (at < word.size() && !begins(i)) {
      at += std::max<std::size_t>(1, utf8_length(word, at));
      if (begins(i + 1)) break;
    }
    at += length_at(word.substr(at), ids[i]);
    ends.push_back(at);
  }
  return ends;
}

std::unique_ptr<SubwordModel> read_subword_model(const nlohmann::json& json) {
  // Files of earlier versions have no type.
  std::string type = json.contains("merges") ? "BPE" : "Unigram";
  if (json.contains("type")) type = json.at("type").get<std::string>();
  if (type == "BPE") return read_bpe(json);
  if (type == "Unigram") return read_unigram(json);
  fail(ExitCode::bad_input, "the model {} is not supported", excerpt(type));
}

}  // namespace lyceum
