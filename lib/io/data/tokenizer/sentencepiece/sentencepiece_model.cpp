#include "io/data/tokenizer/sentencepiece/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/error.h"
#include "io/data/tokenizer/sentencepiece/piece_model.h"
#include "io/data/tokenizer/sentencepiece/piece_normalizer.h"
#include "io/data/tokenizer/sentencepiece/piece_segmentation.h"
#include "io/text/byte_token.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

/// Loads a model. Returns the reason if that fails, else "".
std::string load(sentencepiece::SentencePieceProcessor& processor, std::string_view bytes) {
  try {
    const auto status = processor.LoadFromSerializedProto(bytes);
    if (!status.ok()) return status.ToString();
  } catch (const std::exception& error) {  // thrown by the trie of the pieces
    return error.what();
  }
  return processor.GetPieceSize() > 0 ? "" : "it has no pieces";
}

/// A serialised model that SentencePiece loads.
struct LoadedModel {
  std::string bytes;
  std::int32_t end_of_text;  // −1 if the model has none
};

/// Copies a model after checking that SentencePiece loads it. Throws a bad_input Error if it does not.
LoadedModel load_checked(std::string_view bytes) {
  sentencepiece::SentencePieceProcessor processor;
  const std::string problem = load(processor, bytes);
  require_input(problem.empty(),
                "it is neither a SentencePiece model ({}) nor a tokenizer.json: train it again with "
                "`lyceum tokenize --retrain`",
                problem);
  return {.bytes = std::string(bytes), .end_of_text = processor.eos_id()};
}

PieceSegmentation::Bytes bytes_of(const PieceModel& model) {
  PieceSegmentation::Bytes bytes;
  bytes.fill(-1);
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& [piece, score, kind] = model.pieces[id];
    require_input(kind == PieceModel::unused || piece.find('\0') == std::string_view::npos,
                  "its piece {} contains a NUL", id);
    if (kind != PieceModel::byte) continue;
    const auto value = byte_of_token(piece);
    require_input(value.has_value(), "its byte token {} has the name {}", id, piece);
    bytes[*value] = static_cast<std::int32_t>(id);
  }
  require_input(std::ranges::find(bytes, -1) == bytes.end(),
                "it has no token for every byte: train it with byte fallback, as `lyceum tokenize` does");
  return bytes;
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
  LoadedModel loaded;
  PieceModel model{loaded.bytes};
  PieceSegmentation::Bytes bytes = bytes_of(model);
  PieceNormalizer normalize{model.normalization, model.space_behind, symbols_of(model)};
  PieceNormalizer denormalize{model.denormalization, model.space_behind, {}};
  std::unique_ptr<PieceSegmentation> segmentation = make_segmentation(model, bytes);

  explicit Implementation(std::string_view given) : loaded(load_checked(given)) {
    require_input(loaded.end_of_text >= 0, "it has no end-of-text token: train it with one, as `lyceum tokenize` does");
  }

  /// Returns the text of tokens before denormalisation. Removes the space that normalisation adds at the beginning of a
  /// document.
  std::string join_pieces(std::span<const std::int32_t> tokens, bool show_control) const {
    const auto& [charsmap, adds_space, joins_spaces, marks_spaces] = model.normalization;
    std::string text, run;  // `run`: the bytes of consecutive byte tokens
    const auto end_run = [&] {
      for (std::size_t at = 0, length = 0; at < run.size(); at += std::max<std::size_t>(1, length)) {
        length = utf8_length(run, at);
        text += length > 0 ? std::string_view(run).substr(at, length) : replacement_character;
      }
      run.clear();
    };
    bool begins = true, removed = false;  // removed: the previous piece has lost its space
    for (const std::int32_t token : tokens) {
      const auto& [piece, score, kind] = model.pieces[static_cast<std::size_t>(token)];
      if (kind == PieceModel::byte) {
        run += static_cast<char>(*byte_of_token(piece));
        continue;
      }
      end_run();
      if (removed || !text.empty()) begins = false;
      removed = false;
      if (kind == PieceModel::control) {
        if (show_control) text += piece;
        continue;
      }
      if (kind == PieceModel::unknown) {
        text += model.unknown_text;
        continue;
      }
      const bool removes = begins && (adds_space || joins_spaces) && piece.starts_with(space_mark);
      removed = removes && !joins_spaces;  // if spaces are joined, they are removed from all pieces at the beginning
      text += with_spaces(piece.substr(removes ? space_mark.size() : 0));
    }
    end_run();
    return text;
  }
};

SentencePieceModel::SentencePieceModel(std::string_view bytes, const std::string& name) {
  try {
    implementation_ = std::make_unique<Implementation>(bytes);
  } catch (const Error& error) {
    fail(ExitCode::bad_input, "{} cannot be used: {}", name, error.what());
  }
}

SentencePieceModel::~SentencePieceModel() = default;
SentencePieceModel::SentencePieceModel(SentencePieceModel&&) noexcept = default;

std::int64_t SentencePieceModel::vocab() const { return std::ssize(implementation_->model.pieces); }
std::int32_t SentencePieceModel::end_of_document() const { return implementation_->loaded.end_of_text; }

void SentencePieceModel::encode(std::string_view text, TextPart part, WordCache* words,
                                std::vector<std::int32_t>& tokens) const {
  implementation_->segmentation->encode(implementation_->normalize(text, part), words, tokens);
}

std::size_t SentencePieceModel::cut(std::string_view text) const {
  for (std::size_t at = text.size(); at-- > 1;) {
    if (implementation_->segmentation->separates(text[at - 1], text[at]) &&
        implementation_->normalize.separates(text, at)) {
      return at;
    }
  }
  return 0;
}

void SentencePieceModel::encode(const MarkedText& text, TextPart part, WordCache* words,
                                std::vector<std::int32_t>& tokens, std::vector<std::uint8_t>& marks) const {
  std::vector<TextRange> ranges(text.marked.begin(), text.marked.end());
  std::string normal;
  move_ends(ranges,
            [&](std::span<std::size_t> offsets) { normal = implementation_->normalize(text.text, part, offsets); });
  const std::size_t first = tokens.size();
  implementation_->segmentation->encode(normal, words, tokens);
  std::size_t begin = 0;
  for (std::size_t i = first; i < tokens.size(); ++i) {
    const PieceModel::Piece& piece = implementation_->model.pieces[static_cast<std::size_t>(tokens[i])];
    const std::size_t end = begin + (piece.kind == PieceModel::byte ? 1 : piece.text.size());
    marks.push_back(overlaps(ranges, {std::exchange(begin, end), end}) ? 1 : 0);
  }
}

std::string SentencePieceModel::decode(std::span<const std::int32_t> tokens, bool show_special) const {
  const std::string text = implementation_->join_pieces(tokens, show_special);
  return implementation_->model.denormalization.charsmap.empty() ? text : implementation_->denormalize(text);
}

std::optional<std::int32_t> SentencePieceModel::id(std::string_view piece) const {
  const std::vector<PieceModel::Piece>& pieces = implementation_->model.pieces;
  const auto found = std::ranges::find(pieces, piece, &PieceModel::Piece::text);
  return found == pieces.end() ? std::nullopt : std::optional(static_cast<std::int32_t>(found - pieces.begin()));
}

}  // namespace lyceum
