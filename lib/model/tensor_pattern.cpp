#include "model/tensor_pattern.h"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace lyceum {

TensorPattern::TensorPattern(std::string text) : text_(std::move(text)), name_(text_) {
  const std::size_t open = text_.rfind('['), colon = text_.rfind(':');
  if (open == std::string::npos || colon == std::string::npos || colon < open) return;
  name_ = text_.substr(0, open);
  const auto number = [&](std::size_t begin, std::size_t end, std::int64_t fallback) {
    const char* last = text_.data() + end;
    std::int64_t value = fallback;
    const auto [at, error] = std::from_chars(text_.data() + begin, last, value);
    const bool read = begin == end || (error == std::errc() && at == last && value >= 0);
    require_usage(read && text_.back() == ']', "optim.train_only: '{}': write rows as [8:], [:8] or [8:12]", text_);
    return value;
  };
  first_ = number(open + 1, colon, 0);
  last_ = number(colon + 1, text_.size() - 1, -1);
}

bool TensorPattern::matches(const std::string& name) const { return fnmatch(name_.c_str(), name.c_str(), 0) == 0; }

Range TensorPattern::rows_of(std::int64_t rows) const {
  const std::int64_t first = std::min(first_, rows), last = last_ < 0 ? rows : std::min(last_, rows);
  return {first, std::max<std::int64_t>(0, last - first)};
}

std::vector<TensorPattern> tensor_patterns(const std::vector<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

std::vector<TensorPattern> whole_tensor_patterns(const char* key, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    const std::size_t open = text.rfind('['), colon = text.rfind(':');
    const bool rows = open != std::string::npos && colon != std::string::npos && colon > open;
    require_usage(!rows, "{}: '{}' names rows of a tensor: name whole tensors", key, text);
  }
  return tensor_patterns(texts);
}

bool matches_any(const std::vector<TensorPattern>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](const TensorPattern& pattern) { return pattern.matches(name); });
}

std::string text_of(const std::vector<TensorPattern>& patterns) {
  std::string texts;
  for (const TensorPattern& pattern : patterns) texts += (texts.empty() ? "" : ", ") + pattern.text();
  return texts;
}

namespace {

/// Returns the union of ranges as ascending, disjoint ranges.
std::vector<Range> joined(std::vector<Range> ranges) {
  std::ranges::sort(ranges, {}, &Range::first);
  std::vector<Range> all;
  for (const Range& range : ranges) {
    if (range.count == 0) continue;
    if (all.empty() || range.first > all.back().end()) {
      all.push_back(range);
    } else {
      all.back().count = std::max(all.back().end(), range.end()) - all.back().first;
    }
  }
  return all;
}

}  // namespace

bool names_any(const Parameter& parameter, const std::vector<TensorPattern>& patterns) {
  return std::ranges::any_of(parameter.slices, [&](const ParameterSlice& slice) {
    return std::ranges::any_of(patterns, [&](const TensorPattern& pattern) {
      return pattern.matches(slice.name) && pattern.rows_of(slice.shape[0]).count > 0;
    });
  });
}

std::vector<Range> named_elements(const Parameter& parameter, const std::vector<TensorPattern>& patterns) {
  std::vector<Range> named;
  for (const ParameterSlice& slice : parameter.slices) {
    const std::int64_t own = slice.extent[0], row = own > 0 ? slice.in_memory().size() / own : 0;
    for (const TensorPattern& pattern : patterns) {
      if (!pattern.matches(slice.name)) continue;
      const Range rows = pattern.rows_of(slice.shape[0]);
      const std::int64_t first = std::clamp<std::int64_t>(rows.first - slice.offset[0], 0, own);
      const std::int64_t last = std::clamp<std::int64_t>(rows.end() - slice.offset[0], 0, own);
      named.push_back({slice.first + first * row, (last - first) * row});
    }
  }
  return joined(std::move(named));
}

std::vector<Range> unnamed_elements(const Parameter& parameter, const std::vector<TensorPattern>& patterns) {
  std::vector<Range> unnamed;
  const std::vector<Range> others = other_elements(parameter.shape.size(), named_elements(parameter, patterns));
  for (const ParameterSlice& slice : parameter.slices) {
    for (const Range& other : others) {
      const Range part = common(other, {slice.first, slice.in_memory().size()});
      if (part.count > 0) unnamed.push_back(part);
    }
  }
  return joined(std::move(unnamed));
}

std::vector<Range> other_elements(std::int64_t size, const std::vector<Range>& ranges) {
  std::vector<Range> others;
  std::int64_t at = 0;
  for (const Range& range : ranges) {
    if (range.first > at) others.push_back({at, range.first - at});
    at = range.end();
  }
  if (at < size) others.push_back({at, size - at});
  return others;
}

}  // namespace lyceum
