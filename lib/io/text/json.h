#pragma once

#include <nlohmann/json.hpp>

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

/// Reads JSON from any source, and writes JSON with strings of any bytes. nlohmann's library rejects strings that are
/// not UTF-8.
namespace lyceum {

/// Throws a bad_input Error if a text nests deeper than `deepest` levels. The default is more than any file that Lyceum
/// writes. Call it before parsing a text from elsewhere, since the library copies and prints values recursively.
void require_shallow(std::string_view json, int deepest = 16);

/// Returns the JSON text of a value, indented by `indent` spaces per level, or on one line if `indent` is negative.
/// Accepts strings of any bytes, as file and host names can be: a byte that is not part of valid UTF-8 is written as an
/// escape from \udc80 to \udcff, as Python's json.dumps(os.fsdecode(name)) does. Defined for json and ordered_json.
template <class Json>
std::string json_text(const Json& json, int indent = -1);

/// Parses JSON, and converts the escapes of json_text() back to bytes. If the text is not JSON, throws the library's
/// parse_error, or returns a discarded value if `allow_exceptions` is false.
template <class Json>
Json parse_json(std::string_view text, bool allow_exceptions = true);

/// Parses JSON of other programs as Python's json does. Also accepts NaN, Infinity, numbers beyond the range of a
/// double, and strings that are not valid UTF-8. A surrogate without its other half becomes the three bytes ED A0 80 …
/// ED BF BF: check is_utf8() before you use a string as text. Returns a discarded value if the text is not JSON.
/// Precondition: require_shallow(text, 1000).
nlohmann::json parse_as_python(std::string_view text);

/// Returns the value as a T: a string, number, list or array, also nested. Throws the library's exceptions. Unlike the
/// library, it also throws if a number is not representable by the integer type T, instead of truncating it.
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

/// Converts implicitly to the type of the variable or field that it initialises, with exact_value(). Does not own the
/// JSON: use it as a temporary, as in `.count = Exact(json.at("count"))`.
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
