#pragma once

#include <nlohmann/json.hpp>

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

/// Reading JSON that may contain anything, and writing JSON with strings of any bytes, which nlohmann's library
/// refuses.
namespace lyceum {

/// Throws a bad_input Error when a text nests deeper than `deepest` levels, by default more than any file of ours: the
/// library copies and prints values by recursion.
void require_shallow(std::string_view json, int deepest = 16);

/// The JSON text of a value, indented by `indent` spaces per level, or on one line if that is negative. Writes any
/// string, as a file or a host may be called: a byte that is not part of valid UTF-8 becomes an escape from \udc80 to
/// \udcff, as in Python's json.dumps(os.fsdecode(name)). Defined for json and ordered_json.
template <class Json>
std::string json_text(const Json& json, int indent = -1);

/// Reads JSON, and returns the bytes that json_text() has written as escapes. Throws the library's parse_error, or
/// returns a discarded value.
template <class Json>
Json parse_json(std::string_view text, bool allow_exceptions = true);

/// Reads JSON that others wrote as Python's json does: also NaN, Infinity, numbers beyond the range of a double, and
/// strings that are not valid UTF-8, in which a surrogate without its other half has the three bytes ED A0 80 …
/// ED BF BF: check is_utf8() before you use a string as text. Returns a discarded value if the text is not JSON.
/// Precondition: require_shallow(text, 1000).
nlohmann::json parse_as_python(std::string_view text);

/// The value as a T. Throws the library's exceptions, also for a number that T cannot represent, or a real one for an
/// integer, which the library would convert somehow.
template <class T, class Json>
T exact_value(const Json& json) {
  if constexpr (requires(T list) { list.push_back(typename T::value_type()); } &&
                !std::convertible_to<T, std::string_view>) {
    T list;
    if (!json.is_array()) return json.template get<T>();  // throws
    for (const Json& value : json) list.push_back(exact_value<typename T::value_type>(value));
    return list;
  } else if constexpr (requires(T array) { array.fill(array.at(0)); }) {
    T array;
    for (std::size_t i = 0; i < array.size(); ++i) array[i] = exact_value<typename T::value_type>(json.at(i));
    return array;
  } else if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    const bool fits = json.is_number_unsigned()
                          ? std::in_range<T>(json.template get<std::uint64_t>())
                          : json.is_number_integer() && std::in_range<T>(json.template get<std::int64_t>());
    if (!fits && json.is_number()) {
      throw nlohmann::json::out_of_range::create(406, json_text(json) + " is not an integer in the range of its field",
                                                 &json);
    }
    return json.template get<T>();
  } else {
    return json.template get<T>();
  }
}

/// Converts to the type of what it initialises, by exact_value().
template <class Json>
class Exact {
 public:
  explicit Exact(const Json& json) : json_(json) {}
  template <class T>
  operator T() const {  // NOLINT: implicit
    return exact_value<T>(json_);
  }

 private:
  const Json& json_;
};

}  // namespace lyceum
