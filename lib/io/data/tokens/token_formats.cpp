#include "io/data/tokens/token_formats.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <system_error>

#include "io/data/tokens/megatron_file.h"
#include "io/data/tokens/megatron_format.h"

namespace lyceum {

namespace {

struct TokenFormat {
  /// The endings of the names of two files: the one with the tokens, and one that only this format has, by which it is
  /// recognised.
  const char *tokens_ending, *own_ending;
  std::unique_ptr<TokenSource> (*open)(const std::string& prefix);
};

constexpr std::array formats{TokenFormat{megatron::tokens_ending, megatron::index_ending, open_megatron}};

bool exists(const TokenFormat& format, const std::string& prefix) {
  std::error_code absent;
  return std::filesystem::exists(prefix + format.own_ending, absent);
}

/// Returns the format of the files of a prefix, or the first format if there are none.
const TokenFormat& format_of(const std::string& prefix) {
  const auto found = std::ranges::find_if(formats, [&](const TokenFormat& one) { return exists(one, prefix); });
  return found == formats.end() ? formats.front() : *found;
}

}  // namespace

std::shared_ptr<const TokenSource> open_tokens(const std::string& prefix) {
  const std::shared_ptr<TokenSource> source = format_of(prefix).open(prefix);
  source->open_mask();
  return source;
}

bool has_tokens(const std::string& prefix) { return exists(format_of(prefix), prefix); }

std::string token_path(const std::string& prefix) { return prefix + format_of(prefix).tokens_ending; }

std::string token_endings() {
  std::string text;
  for (const auto& [tokens_ending, own_ending, open] : formats) {
    text.append(text.empty() ? "" : " or ").append(tokens_ending);
    if (tokens_ending != std::string(own_ending)) text.append("/").append(own_ending);
  }
  return text;
}

}  // namespace lyceum
