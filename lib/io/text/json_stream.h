#pragma once

#include <functional>
#include <string_view>

namespace lyceum {

/// Returns the next block of a text, which is valid until the next call; an empty block at the end of the text.
using TextBlocks = std::function<std::string_view()>;

/// The two functions that read_json_members() calls.
struct JsonMembers {
  /// True if the elements of the array `key` are to be passed one by one.
  std::function<bool(std::string_view key)> divided;
  /// Receives the JSON text of the value of a member, or of one element of a divided array. Returns false to stop.
  std::function<bool(std::string_view key, std::string_view value)> each;
};

/// Reads a JSON object from a text of any length. It needs memory for the longest text that it passes to `each`, not
/// for the whole object. Members and elements are passed in the order of the text. A divided array without elements is
/// not passed. Only brackets and quotes of a value are checked: parse it with parse_json(). Throws a bad_input Error if
/// the text is not one object, ends early, or nests deeper than `deepest` levels.
void read_json_members(const TextBlocks& next, const JsonMembers& members, int deepest = 16);

}  // namespace lyceum
