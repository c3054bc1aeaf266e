#include "io/text/json_stream.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "io/text/json.h"

namespace lyceum {

namespace {

class MemberReader {
 public:
  MemberReader(const TextBlocks& next, const JsonMembers& members, int deepest)
      : next_(next), members_(members), deepest_(deepest) {}

  void read() {
    expect('{');
    if (!take('}')) {
      do {
        if (!member()) return;
      } while (take(','));
      expect('}');
    }
    const bool ended = skip_space() == end;
    require_input(ended, "damaged: byte {} is after the end of its JSON object", at_ + 1);
  }

 private:
  static constexpr int end = -1;

  /// Reads a member. Returns false if the rest is not wanted.
  bool member() {
    text_.clear();
    if (skip_space() != '"') fail_here();
    string();
    const std::string key = parse_json<nlohmann::json>(text_).get<std::string>();
    expect(':');
    if (skip_space() != '[' || !members_.divided(key)) return pass_value(key, 1);
    advance();
    if (take(']')) return true;
    do {
      if (!pass_value(key, 2)) return false;
    } while (take(','));
    expect(']');
    return true;
  }

  /// Reads a value within `depth` brackets and passes it on.
  bool pass_value(const std::string& key, int depth) {
    text_.clear();
    value(depth);
    return members_.each(key, text_);
  }

  void value(int depth) {
    const int outside = depth;
    do {
      const int c = depth == outside ? skip_space() : peek();
      if (c == '"') {
        string();
        continue;
      }
      if (c == end) fail_here();
      if (c == '{' || c == '[') {
        require_input(++depth <= deepest_, "damaged: it nests deeper than {} levels", deepest_);
      } else if ((c == '}' || c == ']') && --depth < outside) {
        fail_here();
      }
      if (depth == outside && c != '}' && c != ']') return word();
      keep();
      if (depth > outside) keep_until("\"{}[]");
    } while (depth > outside);
  }

  /// Reads a number or a word such as null.
  void word() {
    const std::size_t before = text_.size();
    const auto ends = [](int c) {
      return c == end || std::string_view(" \t\r\n,:{}[]\"").find(static_cast<char>(c)) != std::string_view::npos;
    };
    while (!ends(peek())) keep();
    if (text_.size() == before) fail_here();
  }

  void string() {
    keep();
    for (;;) {
      if (peek() == end) fail_here();
      keep_until("\"\\");
      if (peek() == '"') return keep();
      if (peek() == '\\') {
        keep();
        if (peek() == end) fail_here();
        keep();
      }
    }
  }

  bool take(char c) {
    if (skip_space() != c) return false;
    advance();
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail_here();
  }
  int skip_space() {
    int c = peek();
    for (; c == ' ' || c == '\t' || c == '\r' || c == '\n'; c = peek()) advance();
    return c;
  }
  [[noreturn]] void fail_here() {
    if (peek() == end) fail(ExitCode::bad_input, "damaged: it ends early, after {} bytes", at_);
    fail(ExitCode::bad_input, "damaged: byte {} is not what JSON has there", at_ + 1);
  }

  /// Returns the next byte without reading it, or `end`.
  int peek() {
    if (position_ == block_.size()) {
      block_ = next_();
      position_ = 0;
      if (block_.empty()) return end;
    }
    return static_cast<unsigned char>(block_[position_]);
  }
  void advance() {
    ++position_;
    ++at_;
  }
  void keep() {
    text_ += block_[position_];
    advance();
  }
  /// Keeps the bytes before the next one of `stops` in this block, or the rest of the block.
  void keep_until(std::string_view stops) {
    const std::size_t stop = std::min(block_.find_first_of(stops, position_), block_.size());
    text_ += block_.substr(position_, stop - position_);
    at_ += static_cast<std::int64_t>(stop - position_);
    position_ = stop;
  }

  const TextBlocks& next_;
  const JsonMembers& members_;
  const int deepest_;
  std::string_view block_;
  std::size_t position_ = 0;
  std::int64_t at_ = 0;  // number of bytes read
  std::string text_;     // of the value that is being read
};

}  // namespace

void read_json_members(const TextBlocks& next, const JsonMembers& members, int deepest) {
  MemberReader(next, members, deepest).read();
}

}  // namespace lyceum
