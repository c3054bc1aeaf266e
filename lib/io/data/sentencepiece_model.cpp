#include "io/data/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <exception>

#include "core/error.h"
#include "io/text/byte_token.h"
#include "io/text/utf8.h"
#include "io/text/words.h"

namespace lyceum {

namespace {

/// U+2581, which SentencePiece writes for a space. In a text it would come back as a space, so it goes as bytes.
constexpr std::string_view space_mark = "\xE2\x96\x81";

/// Text is given to SentencePiece in parts of about this many bytes, as its time grows faster than its text.
constexpr std::size_t part_bytes = 8192;

/// The end of the longest part from `begin` that SentencePiece keeps as it is: whole characters but the space mark.
/// A long one ends behind a run of newlines, which no piece reaches across.
std::size_t end_of_part(std::string_view text, std::size_t begin) {
  std::size_t at = begin;
  while (at < text.size()) {
    if (at - begin >= part_bytes && text[at - 1] == '\n' && text[at] != '\n') break;
    const std::size_t length = utf8_length(text, at);
    if (length == 0 || text.substr(at, length) == space_mark) break;
    at += length;
  }
  return at;
}

std::string with_spaces(std::string_view piece) {
  std::string text;
  for (std::size_t mark; (mark = piece.find(space_mark)) != std::string_view::npos;) {
    text.append(piece.substr(0, mark)).append(1, ' ');
    piece.remove_prefix(mark + space_mark.size());
  }
  return text.append(piece);
}

}  // namespace

struct SentencePieceModel::Implementation {
  sentencepiece::SentencePieceProcessor processor;
  std::vector<std::string> text;         // of each token
  std::array<std::int32_t, 256> byte{};  // the token of each byte
  bool keeps_to_words = true;

  /// Why this is no model, or empty.
  std::string load(std::string_view bytes) {
    try {
      const auto status = processor.LoadFromSerializedProto(bytes);
      if (!status.ok()) return status.ToString();
    } catch (const std::exception& error) {  // of the trie that pieces go into
      return error.what();
    }
    return processor.GetPieceSize() > 0 ? "" : "it has no pieces";
  }

  void read_pieces(const std::string& name) {
    byte.fill(-1);
    for (int id = 0; id < processor.GetPieceSize(); ++id) {
      const std::string& piece = processor.IdToPiece(id);
      if (processor.IsByte(id)) {
        const auto value = byte_of_token(piece);
        require_input(value.has_value(), "{}: the byte token {} has the name {}", name, id, piece);
        byte[*value] = id;
        text.emplace_back(1, static_cast<char>(*value));
      } else if (processor.IsControl(id) || processor.IsUnknown(id)) {
        text.emplace_back();
      } else {
        text.push_back(with_spaces(piece));
        keeps_to_words = keeps_to_words && !text.back().empty() && end_of_word(text.back(), 0) == text.back().size();
      }
    }
  }

  void encode(std::string_view given, std::vector<std::int32_t>& tokens) const {
    std::vector<int> ids;
    std::size_t at = 0;
    while (at < given.size()) {
      const std::size_t end = end_of_part(given, at);
      if (end > at) {
        const auto status = processor.Encode(given.substr(at, end - at), &ids);
        require(status.ok(), "SentencePiece cannot encode a text: {}", status.ToString());
        tokens.insert(tokens.end(), ids.begin(), ids.end());
        at = end;
      } else {
        const std::size_t bytes = std::max<std::size_t>(1, utf8_length(given, at));
        for (std::size_t i = 0; i < bytes; ++i) {
          tokens.push_back(byte[static_cast<unsigned char>(given[at + i])]);
        }
        at += bytes;
      }
    }
  }
};

SentencePieceModel::SentencePieceModel(std::string_view bytes, const std::string& name)
    : implementation_(std::make_unique<Implementation>()) {
  const std::string problem = implementation_->load(bytes);
  require_input(problem.empty(),
                "{} is neither a SentencePiece model ({}) nor a tokenizer.json: train it again with "
                "`lyceum tokenize --retrain`",
                name, problem);
  implementation_->read_pieces(name);
  require_input(std::ranges::find(implementation_->byte, -1) == implementation_->byte.end(),
                "{} has no token for every byte: train it with byte fallback, as `lyceum tokenize` does", name);
  require_input(end_of_document() >= 0, "{} has no end-of-text token: train it with one, as `lyceum tokenize` does",
                name);
}

SentencePieceModel::~SentencePieceModel() = default;
SentencePieceModel::SentencePieceModel(SentencePieceModel&&) noexcept = default;

std::int64_t SentencePieceModel::vocab() const { return implementation_->processor.GetPieceSize(); }
std::int32_t SentencePieceModel::end_of_document() const { return implementation_->processor.eos_id(); }
bool SentencePieceModel::keeps_to_words() const { return implementation_->keeps_to_words; }

void SentencePieceModel::encode(std::string_view text, WordCache* words, std::vector<std::int32_t>& tokens) const {
  const auto encode = [&](std::string_view part, std::vector<std::int32_t>& out) {
    implementation_->encode(part, out);
  };
  if (words == nullptr || !keeps_to_words()) return encode(text, tokens);
  for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
    end = end_of_word(text, at);
    words->append(text.substr(at, end - at), tokens, encode);
  }
}

std::string SentencePieceModel::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) text += implementation_->text[static_cast<std::size_t>(token)];
  return text;
}

}  // namespace lyceum
