#include "io/text/json.h"

#include <algorithm>
#include <limits>

#include "io/text/utf8.h"

namespace lyceum {

namespace {

using PlainJson = nlohmann::json;

constexpr char32_t first_escaped_byte = 0xDC80, last_escaped_byte = 0xDCFF;

bool is_high_surrogate(char32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low_surrogate(char32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

/// Parses JSON that the library rejects. It is recursive, so it rejects texts that nest deeper than `deepest` levels.
template <class Json>
class Reader {
 public:
  enum class Dialect { own, python };

  Reader(std::string_view text, Dialect dialect) : text_(text), python_(dialect == Dialect::python) {}

  /// Parses the whole text. Returns a discarded value if it is not of the dialect.
  Json document() {
    if (text_.starts_with(byte_order_mark)) at_ = byte_order_mark.size();
    Json value;
    bool is_read = read(value);
    skip_space();
    is_read = is_read && at_ == text_.size();
    if (!is_read) value = Json(Json::value_t::discarded);
    return value;
  }

 private:
  bool read(Json& value) {
    skip_space();
    if (at_ == text_.size()) return false;
    switch (text_[at_]) {
      case '{': return depth_ < deepest && object(value);
      case '[': return depth_ < deepest && array(value);
      case '"': {
        value = std::string();
        return string(value.template get_ref<std::string&>());
      }
      default: return word(value);
    }
  }

  bool object(Json& value) {
    value = Json::object();
    ++at_;
    if (take('}')) return true;
    ++depth_;
    do {
      skip_space();
      std::string key;
      if (!text_.substr(at_).starts_with('"') || !string(key) || !take(':')) return false;
      if (!read(value[std::move(key)])) return false;  // the last of equal keys counts
    } while (take(','));
    --depth_;
    return take('}');
  }

  bool array(Json& value) {
    value = Json::array();
    ++at_;
    if (take(']')) return true;
    ++depth_;
    do {
      if (!read(value.emplace_back())) return false;
    } while (take(','));
    --depth_;
    return take(']');
  }

  /// Reads a number or a word such as null.
  bool word(Json& value) {
    const std::size_t begin = at_;
    const auto is_part = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' ||
             c == '.';
    };
    while (at_ < text_.size() && is_part(text_[at_])) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    const double infinity = std::numeric_limits<double>::infinity();
    const double signed_infinity = word.starts_with('-') ? -infinity : infinity;
    if (python_ && word == "NaN") {
      value = std::numeric_limits<double>::quiet_NaN();
    } else if (python_ && (word == "Infinity" || word == "-Infinity")) {
      value = signed_infinity;
    } else {
      try {
        value = Json::parse(word);
      } catch (const PlainJson::out_of_range&) {  // a number beyond the range of double
        value = signed_infinity;
        return python_;
      } catch (const PlainJson::parse_error&) {
        return false;
      }
    }
    return true;
  }

  bool string(std::string& out) {
    ++at_;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (static_cast<unsigned char>(c) < ' ') return false;
      if (c == '\\') {
        if (!escape(out)) return false;
        continue;
      }
      const std::size_t length = python_ ? 1 : utf8_length(text_, at_);
      if (length == 0) return false;
      out.append(text_, at_, length);
      at_ += length;
    }
    return false;
  }

  bool escape(std::string& out) {
    constexpr std::string_view names = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    if (at_ + 1 == text_.size()) return false;
    const std::size_t name = names.find(text_[at_ + 1]);
    if (name != std::string_view::npos) {
      out += meanings[name];
      at_ += 2;
      return true;
    }
    char32_t unit = 0, low = 0;
    if (!unicode_escape(unit)) return false;
    if (is_high_surrogate(unit)) {
      const std::size_t behind = at_;
      if (unicode_escape(low) && is_low_surrogate(low)) {
        append_utf8(out, 0x10000 + ((unit - 0xD800) << 10 | (low - 0xDC00)));
        return true;
      }
      at_ = behind;
    }
    const bool lone = is_high_surrogate(unit) || is_low_surrogate(unit);
    if (lone && !python_) {
      if (unit < first_escaped_byte || unit > last_escaped_byte) return false;
      out += static_cast<char>(unit & 0xFFu);
    } else {
      append_utf8(out, unit);
    }
    return true;
  }

  /// Reads \uXXXX.
  bool unicode_escape(char32_t& unit) {
    constexpr std::size_t length = 6;
    if (!text_.substr(at_).starts_with("\\u") || text_.size() - at_ < length) return false;
    unit = 0;
    for (const char c : text_.substr(at_ + 2, length - 2)) {
      const std::size_t digit = std::string_view("0123456789abcdef").find(c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c);
      if (digit == std::string_view::npos) return false;
      unit = unit << 4 | static_cast<char32_t>(digit);
    }
    at_ += length;
    return true;
  }

  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\n\r", at_), text_.size()); }
  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  static constexpr int deepest = 1000;

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool python_;
};

/// Appends a string with its quotes.
void write(std::string_view string, std::string& out) {
  out += '"';
  for (std::size_t at = 0; at < string.size();) {
    std::size_t end = at;  // of the valid UTF-8 that begins at `at`
    for (std::size_t length = 1; length > 0; end += length) length = utf8_length(string, end);
    const std::string valid = PlainJson(string.substr(at, end - at)).dump();
    out.append(valid, 1, valid.size() - 2);
    constexpr std::string_view digits = "0123456789abcdef";
    for (; end < string.size() && utf8_length(string, end) == 0; ++end) {
      const auto byte = static_cast<unsigned char>(string[end]);
      out.append("\\udc") += digits[byte >> 4];
      out += digits[byte & 0xFu];
    }
    at = end;
  }
  out += '"';
}

/// Appends a value. Everything except strings is written as the library does. `level`: indentation of the value itself.
template <class Json>
void write(const Json& json, int indent, int level, std::string& out) {
  if (json.is_string()) return write(json.template get_ref<const std::string&>(), out);
  if (!json.is_structured() || json.empty()) {
    out += json.dump();
    return;
  }
  const auto new_line = [&](int at_level) {
    if (indent >= 0) out.append(1, '\n').append(static_cast<std::size_t>(indent * at_level), ' ');
  };
  out += json.is_object() ? '{' : '[';
  for (auto member = json.begin(); member != json.end(); ++member) {
    if (member != json.begin()) out += ',';
    new_line(level + 1);
    if (json.is_object()) {
      write(member.key(), out);
      out += indent >= 0 ? ": " : ":";
    }
    write(*member, indent, level + 1, out);
  }
  new_line(level);
  out += json.is_object() ? '}' : ']';
}

}  // namespace

void require_shallow(std::string_view json, int deepest) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      require_input(++depth <= deepest, "damaged: it nests deeper than {} levels", deepest);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

template <class Json>
std::string json_text(const Json& json, int indent) {
  try {
    return json.dump(indent);
  } catch (const PlainJson::type_error&) {  // a string that is not UTF-8
    std::string text;
    write(json, indent, 0, text);
    return text;
  }
}

template std::string json_text(const nlohmann::json& json, int indent);
template std::string json_text(const nlohmann::ordered_json& json, int indent);

template <class Json>
Json parse_json(std::string_view text, bool allow_exceptions) {
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) value = Reader<Json>(text, Reader<Json>::Dialect::own).document();
  if (value.is_discarded() && allow_exceptions) value = Json::parse(text);  // throws
  return value;
}

template nlohmann::json parse_json(std::string_view text, bool allow_exceptions);
template nlohmann::ordered_json parse_json(std::string_view text, bool allow_exceptions);

PlainJson parse_as_python(std::string_view text) {
  // The library takes a zero byte for the end of the text.
  if (text.find('\0') != std::string_view::npos) return PlainJson(PlainJson::value_t::discarded);
  PlainJson value = PlainJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) value = Reader<PlainJson>(text, Reader<PlainJson>::Dialect::python).document();
  return value;
}

}  // namespace lyceum
