#include "io/data/tokenizer/json/decoder.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "io/data/tokenizer/json/byte_characters.h"
#include "io/data/tokenizer/json/pattern.h"
#include "io/data/tokenizer/json/pre_tokenizer.h"
#include "io/text/byte_token.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

using Texts = std::vector<std::string>;

/// Returns a decoder that changes each text separately.
template <class Change>
Decoder each(Change change) {
  return [change = std::move(change)](Texts texts) {
    for (std::string& text : texts) text = change(text);
    return texts;
  };
}

std::string joined(const Texts& texts) {
  std::string all;
  for (const std::string& text : texts) all += text;
  return all;
}

/// Returns the bytes that the characters of a token represent; the token itself if one of its characters represents
/// none.
std::string bytes_of_characters(const std::string& token) {
  static const std::unordered_map<char32_t, char> bytes = [] {
    std::unordered_map<char32_t, char> all;
    for (unsigned b = 0; b < 256; ++b) all.emplace(byte_character(static_cast<unsigned char>(b)), static_cast<char>(b));
    return all;
  }();
  std::string out;
  for (std::size_t at = 0; at < token.size(); at += utf8_length(token, at)) {
    const auto byte = bytes.find(character_at(token, at));
    if (byte == bytes.end()) return token;
    out += byte->second;
  }
  return out;
}

Texts from_byte_characters(Texts texts) {
  std::string bytes;
  for (const std::string& text : texts) bytes += bytes_of_characters(text);
  return {replace_invalid_utf8(bytes)};
}

/// Joins consecutive byte tokens into one text. If their bytes are not valid UTF-8, each token becomes U+FFFD.
Texts from_byte_tokens(Texts texts) {
  Texts out;
  std::string bytes;
  const auto end_run = [&] {
    if (is_utf8(bytes)) {
      if (!bytes.empty()) out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), std::string(replacement_character));
    }
    bytes.clear();
  };
  for (std::string& text : texts) {
    if (const std::optional<std::uint8_t> byte = byte_of_token(text)) {
      bytes += static_cast<char>(*byte);
    } else {
      end_run();
      out.push_back(std::move(text));
    }
  }
  end_run();
  return out;
}

/// Removes up to `start` times `content` from the beginning and up to `stop` times from the end.
struct StripEnds {
  std::string content;  // one character
  std::size_t start, stop;

  std::string operator()(std::string_view text) const {
    for (std::size_t i = 0; i < start && text.starts_with(content); ++i) text.remove_prefix(content.size());
    for (std::size_t i = 0; i < stop && text.ends_with(content); ++i) text.remove_suffix(content.size());
    return std::string(text);
  }
};

/// Replaces marks by spaces. Removes the marks of the first token if the pre-tokenizer prepends one.
Decoder from_metaspace(const nlohmann::json& json) {
  const std::string mark = json.at("replacement");
  const bool prepended = json.value("prepend_scheme", "always") != "never";
  require_input(!prepended || json.value("add_prefix_space", true),
                "the decoder Metaspace has prepend_scheme and add_prefix_space that contradict each other");
  require_input(!mark.empty(), "the decoder Metaspace has no replacement");
  return [mark, prepended](Texts texts) {
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::string_view space = i == 0 && prepended ? "" : " ";
      std::string out;
      std::string_view rest = texts[i];
      for (std::size_t at; (at = rest.find(mark)) != std::string_view::npos; rest.remove_prefix(at + mark.size())) {
        out.append(rest.substr(0, at)).append(space);
      }
      texts[i] = out.append(rest);
    }
    return texts;
  };
}

}  // namespace

std::vector<Decoder> read_decoders(const nlohmann::json& json) {
  if (json.is_null()) return {};
  const std::string type = json.at("type");
  if (type == "Sequence") {
    std::vector<Decoder> all;
    for (const nlohmann::json& one : json.at("decoders")) {
      for (Decoder& decoder : read_decoders(one)) all.push_back(std::move(decoder));
    }
    return all;
  }
  if (type == "ByteLevel") return {from_byte_characters};
  if (type == "ByteFallback") return {from_byte_tokens};
  if (type == "Fuse") return {[](const Texts& texts) { return Texts{joined(texts)}; }};
  if (type == "Metaspace") return {from_metaspace(json)};
  if (type == "Replace") {
    return {each([replace = read_replace(json)](const std::string& text) {
      RegexBudget budget(text.size());
      return (*replace)(text, budget);
    })};
  }
  if (type == "Strip") {
    const std::string content = json.at("content");
    require_input(!content.empty() && utf8_length(content, 0) == content.size(),
                  "the decoder Strip removes {}, which is not one character", excerpt(content));
    return {each(StripEnds{.content = content,
                           .start = exact_value<std::size_t>(json.at("start")),
                           .stop = exact_value<std::size_t>(json.at("stop"))})};
  }
  fail(ExitCode::bad_input, "the decoder {} is not supported", excerpt(type));
}

}  // namespace lyceum
