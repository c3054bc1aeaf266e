#include "io/tokenizer_json/subword_model.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "io/text/byte_token.h"
#include "io/text/utf8.h"

namespace lyceum {

void Vocabulary::add(std::string token, std::int64_t id) {
  require_input(id >= 0 && id < most_ids, "the token {} has the id {}: ids are 0 to {}", excerpt(token), id,
                most_ids - 1);
  require_input(!contains(id), "two tokens have the id {}", id);
  require_input(ids_.emplace(token, static_cast<std::int32_t>(id)).second, "two tokens are {}", excerpt(token));
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

std::unique_ptr<SubwordModel> read_subword_model(const nlohmann::json& json) {
  // Files of earlier versions have no type.
  const std::string type = json.contains("type")     ? json.at("type").get<std::string>()
                           : json.contains("merges") ? "BPE"
                                                     : "Unigram";
  if (type == "BPE") return read_bpe(json);
  if (type == "Unigram") return read_unigram(json);
  fail(ExitCode::bad_input, "the model {} is not supported", excerpt(type));
}

}  // namespace lyceum
