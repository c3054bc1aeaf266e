#include "io/tokenizer_json/regex.h"

#include <oniguruma.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

constexpr std::size_t longest_pattern = 10000;  // bytes

const OnigUChar* bytes_of(std::string_view text) { return reinterpret_cast<const OnigUChar*>(text.data()); }

std::string message_of(int code, OnigErrorInfo* info = nullptr) {
  std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> text{};
  const int length = info ? onig_error_code_to_str(text.data(), code, info) : onig_error_code_to_str(text.data(), code);
  return {reinterpret_cast<const char*>(text.data()), static_cast<std::size_t>(std::max(0, length))};
}

void initialize_library() {
  static std::once_flag once;
  std::call_once(once, [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
  });
}

struct FreeMatchParam {
  void operator()(OnigMatchParam* param) const { onig_free_match_param(param); }
};

/// Searches one text. A search may take some steps; one that needs more is made again with all that is left of what the
/// text as a whole may take.
class Search {
 public:
  Search(OnigRegex regex, std::string_view text)
      : regex_(regex), text_(text), left_(10'000'000 + 100 * text.size()), param_(onig_new_match_param()) {
    onig_initialize_match_param(param_.get());
    onig_region_init(&region_);
    limit(few);
  }
  ~Search() { onig_region_free(&region_, 0); }
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  /// The first match at or after `start`; false when there is none.
  bool find(std::size_t start, TextRange& match) {
    int found = search(start);
    if (found == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER) {
      limit(std::exchange(left_, left_ / 2));
      found = search(start);
      limit(few);
    }
    if (found == ONIG_MISMATCH) return false;
    require_input(found >= 0, "searching for a regular expression in a text of {} bytes failed: {}", text_.size(),
                  message_of(found));
    match = {static_cast<std::size_t>(region_.beg[0]), static_cast<std::size_t>(region_.end[0])};
    return true;
  }

 private:
  static constexpr unsigned long few = 1000;

  void limit(unsigned long steps) {
    onig_set_retry_limit_in_search_of_match_param(param_.get(), steps);
    onig_set_retry_limit_in_match_of_match_param(param_.get(), steps);
  }
  int search(std::size_t start) {
    const OnigUChar* const begin = bytes_of(text_);
    const OnigUChar* const end = begin + text_.size();
    const int found =
        onig_search_with_param(regex_, begin, end, begin + start, end, &region_, ONIG_OPTION_NONE, param_.get());
    return found == ONIGERR_RETRY_LIMIT_IN_MATCH_OVER ? ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER : found;
  }

  OnigRegex regex_;
  std::string_view text_;
  unsigned long left_;  // steps
  std::unique_ptr<OnigMatchParam, FreeMatchParam> param_;
  OnigRegion region_{};
};

}  // namespace

struct Regex::Implementation {
  OnigRegex regex = nullptr;

  Implementation() = default;
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;
  ~Implementation() { onig_free(regex); }
};

Regex::Regex(const std::string& pattern) : implementation_(std::make_unique<Implementation>()) {
  initialize_library();
  require_input(pattern.size() <= longest_pattern && is_utf8(pattern),
                "a regular expression of {} bytes: must be UTF-8 and have at most {}", pattern.size(), longest_pattern);
  OnigErrorInfo info{};
  const int code = onig_new(&implementation_->regex, bytes_of(pattern), bytes_of(pattern) + pattern.size(),
                            ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_ONIGURUMA, &info);
  require_input(code == ONIG_NORMAL, "the regular expression {} is invalid: {}", excerpt(pattern),
                message_of(code, &info));
}

std::string Regex::quoted(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view("\\.+*?()|[]{}^$").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

Regex Regex::literal(std::string_view text) { return Regex(quoted(text)); }

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

void Regex::find_all(std::string_view text, std::vector<TextRange>& matches) const {
  matches.clear();
  Search search(implementation_->regex, text);
  std::size_t at = 0;
  TextRange match;
  while (at <= text.size() && search.find(at, match)) {
    const bool follows_one = !matches.empty() && matches.back().end == match.end;
    if (match.begin == match.end && follows_one) {
      at += at < text.size() ? utf8_length(text, at) : 1;
      continue;
    }
    matches.push_back(match);
    at = match.end;
  }
}

}  // namespace lyceum
