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

/// {"String": …} or {"Regex": …}. Throws a bad_input Error for an object with both, and for other keys.
Regex read_pattern(const nlohmann::json& json);

/// Puts `content` where a pattern matches.
class Replace {
 public:
  Replace(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  /// Moves `places`, ascending offsets into the text, to the same places of the result; one within a match goes in
  /// front of `content`.
  std::string operator()(std::string_view text, RegexBudget& budget, std::span<std::size_t> places = {}) const;

 private:
  Regex pattern_;
  std::string content_;
};
/// The component Replace of a normalizer or a decoder.
std::shared_ptr<const Replace> read_replace(const nlohmann::json& json);

}  // namespace lyceum
