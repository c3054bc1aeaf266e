#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "io/data/tokenizer/json/regex.h"

namespace lyceum {

/// Reads a pattern: {"String": …} or {"Regex": …}. Throws a bad_input Error if the object has another or a second
/// member.
Regex read_pattern(const nlohmann::json& json);

/// Replaces all matches of a pattern by `content`.
class Replace {
 public:
  Replace(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  /// Returns the text after the replacements. Replaces each of `offsets`, which are ascending offsets in `text`, by the
  /// offset of the same position in the result; an offset within a match becomes the offset of its `content`.
  std::string operator()(std::string_view text, RegexBudget& budget, std::span<std::size_t> offsets = {}) const;

 private:
  Regex pattern_;
  std::string content_;
};
/// Reads a component Replace of a normalizer or a decoder.
std::shared_ptr<const Replace> read_replace(const nlohmann::json& json);

}  // namespace lyceum
