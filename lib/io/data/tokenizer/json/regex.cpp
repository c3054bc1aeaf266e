#include "io/data/tokenizer/json/regex.h"

#include <oniguruma.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "core/error.h"
#include "io/data/tokenizer/json/regex_syntax.h"
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

constexpr std::string_view counter_name = "STEPS", barrier_name = "BARRIER";

/// The callout `counter` of a rewritten expression. Takes as many steps as there are bytes between the beginning of the
/// match that is tried and the current position.
int count_steps(OnigCalloutArgs* arguments, void* data) {
  const OnigUChar* const begin = onig_get_start_by_callout_args(arguments);
  const OnigUChar* const here = onig_get_current_by_callout_args(arguments);
  auto& steps = *static_cast<RegexBudget*>(data);
  const auto taken = static_cast<std::size_t>(here > begin ? here - begin : 0) + 1;
  if (taken > steps.left) return ONIG_ABORT;
  steps.left -= taken;
  return ONIG_CALLOUT_SUCCESS;
}

void initialize_library() {
  static std::once_flag once;
  std::call_once(once, [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
    const auto set = [](std::string_view text, OnigCalloutFunc call) {
      auto* const name = reinterpret_cast<OnigUChar*>(const_cast<char*>(text.data()));
      const int code = onig_set_callout_of_name(ONIG_ENCODING_UTF8, ONIG_CALLOUT_TYPE_SINGLE, name, name + text.size(),
                                                ONIG_CALLOUT_IN_PROGRESS, call, nullptr, 0, nullptr, 0, nullptr);
      require(code >= 0, "Oniguruma cannot count steps: {}", message_of(code));
    };
    set(counter_name, count_steps);
    set(barrier_name, [](OnigCalloutArgs*, void*) -> int { return ONIG_CALLOUT_SUCCESS; });
  });
}

struct FreeMatchParam {
  void operator()(OnigMatchParam* param) const { onig_free_match_param(param); }
};

/// Searches one text. Takes the steps from a budget.
class Search {
 public:
  Search(OnigRegex regex, const std::string& pattern, std::string_view text, RegexBudget& budget)
      : regex_(regex), pattern_(pattern), text_(text), steps_(budget), param_(onig_new_match_param()) {
    onig_initialize_match_param(param_.get());
    onig_set_callout_user_data_of_match_param(param_.get(), &steps_);
    onig_region_init(&region_);
    limit(few);
  }
  ~Search() { onig_region_free(&region_, 0); }
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  /// Finds the first match at or after `start`. Returns false if there is none.
  bool find(std::size_t start, TextRange& match) {
    int found = search(start);
    // A search is limited to a few steps at first. If that is not enough, it is repeated with four times as many, up to
    // the budget. The steps of the repeated searches count, and for each of them the bytes of text that it passes.
    std::size_t searches = 1;
    for (std::size_t most = few; found == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER && most < steps_.left; ++searches) {
      most *= 4;
      limit(std::min(most, steps_.left));
      take(most);
      found = search(start);
      if (found != ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER) limit(few);
    }
    if (searches > 1) take((searches - 1) * ((found >= 0 ? static_cast<std::size_t>(found) : text_.size()) - start));
    if (found == ONIG_MISMATCH) return false;
    if (found < 0) fail_search(found);
    match = {static_cast<std::size_t>(region_.beg[0]), static_cast<std::size_t>(region_.end[0])};
    return true;
  }

 private:
  static constexpr std::size_t few = 1000;

  void take(std::size_t steps) { steps_.left -= std::min(steps, steps_.left); }
  void limit(std::size_t steps) {
    onig_set_retry_limit_in_search_of_match_param(param_.get(), steps);
    onig_set_retry_limit_in_match_of_match_param(param_.get(), steps);
  }
  [[noreturn]] void fail_search(int code) const {
    if (code == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER || code == ONIG_ABORT) {
      fail(
          ExitCode::bad_input,
          "the regular expression {} takes more than 10 million steps and 100 per byte: simplify it, or leave the text "
          "out",
          excerpt(pattern_));
    }
    fail(ExitCode::bad_input, "searching for the regular expression {} in a text of {} bytes failed: {}",
         excerpt(pattern_), text_.size(), message_of(code));
  }
  int search(std::size_t start) {
    const OnigUChar* const begin = bytes_of(text_);
    const OnigUChar* const end = begin + text_.size();
    const int found =
        onig_search_with_param(regex_, begin, end, begin + start, end, &region_, ONIG_OPTION_NONE, param_.get());
    return found == ONIGERR_RETRY_LIMIT_IN_MATCH_OVER ? ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER : found;
  }

  OnigRegex regex_;
  const std::string& pattern_;
  std::string_view text_;
  RegexBudget& steps_;
  std::unique_ptr<OnigMatchParam, FreeMatchParam> param_;
  OnigRegion region_{};
};

}  // namespace

struct Regex::Implementation {
  OnigRegex regex = nullptr;
  std::string pattern;  // before it is rewritten

  Implementation() = default;
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;
  ~Implementation() { onig_free(regex); }
};

Regex::Regex(const std::string& pattern) : implementation_(std::make_unique<Implementation>()) {
  initialize_library();
  require_input(pattern.size() <= longest_pattern && is_utf8(pattern),
                "a regular expression of {} bytes: must be UTF-8 and have at most {}", pattern.size(), longest_pattern);
  implementation_->pattern = pattern;
  const std::string own =
      rewrite_regex(pattern, "(*" + std::string(counter_name) + ")", "(*" + std::string(barrier_name) + ")");
  OnigErrorInfo info{};
  const int code = onig_new(&implementation_->regex, bytes_of(own), bytes_of(own) + own.size(), ONIG_OPTION_NONE,
                            ONIG_ENCODING_UTF8, ONIG_SYNTAX_ONIGURUMA, &info);
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

void Regex::find_all(std::string_view text, RegexBudget& budget, std::vector<TextRange>& matches) const {
  matches.clear();
  Search search(implementation_->regex, implementation_->pattern, text, budget);
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
