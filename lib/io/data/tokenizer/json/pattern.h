#pragma once

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "io/data/tokenizer/json/regex.h"

namespace lyceum {

/// {"String": …} or {"Regex": …}.
Regex read_pattern(const nlohmann::json& json);

/// Puts `content` where a pattern matches.
class Replace {
 public:
  Replace(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string operator()(std::string_view text) const;

 private:
  Regex pattern_;
  std::string content_;
};
/// The component Replace of a normalizer or a decoder.
std::shared_ptr<const Replace> read_replace(const nlohmann::json& json);

}  // namespace lyceum
