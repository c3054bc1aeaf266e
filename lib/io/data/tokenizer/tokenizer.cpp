#include "io/data/tokenizer/tokenizer.h"

#include <system_error>
#include <utility>
#include <variant>

#include "core/error.h"
#include "io/data/tokenizer/json/tokenizer_json.h"
#include "io/data/tokenizer/sentencepiece/sentencepiece_model.h"
#include "io/files/git_lfs.h"
#include "io/files/system_reason.h"
#include "io/files/whole_file.h"

namespace lyceum {

struct Tokenizer::Implementation {
  std::variant<SentencePieceModel, TokenizerJson> kind;

  template <class Visitor>
  auto visit(const Visitor& visit) const {
    return std::visit(visit, kind);
  }
};

bool Tokenizer::is_json(std::string_view bytes) {
  // A SentencePiece model begins with a newline, which is the tag of a field, and the size of its first piece, which is
  // neither whitespace nor '{'.
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && bytes[first] == '{';
}

Tokenizer::Tokenizer(const std::filesystem::path& file) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(file, error);
  require_input(status.type() != std::filesystem::file_type::not_found,
                "the tokenizer {} does not exist: name an existing one, or train it with `lyceum tokenize`",
                file.native());
  require_input(!error, "the tokenizer {} cannot be read: {}", file.native(), system_reason(error));
  const std::string bytes = read_whole_file(file);
  require_input(!is_lfs_pointer(bytes), "the tokenizer {} is {}", file.native(), lfs_pointer_advice);
  if (is_json(bytes)) {
    implementation_.reset(new Implementation{TokenizerJson(bytes, file.native())});
  } else {
    implementation_.reset(new Implementation{SentencePieceModel(bytes, file.native())});
  }
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;

std::int64_t Tokenizer::vocab() const {
  return implementation_->visit([](const auto& kind) { return kind.vocab(); });
}
std::int32_t Tokenizer::end_of_document() const {
  return implementation_->visit([](const auto& kind) { return kind.end_of_document(); });
}

bool Tokenizer::is_json() const { return std::holds_alternative<TokenizerJson>(implementation_->kind); }

AddedAround Tokenizer::added_around() const {
  const auto* const json = std::get_if<TokenizerJson>(&implementation_->kind);
  return json ? json->added_around() : AddedAround();
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  implementation_->visit([&](const auto& kind) { kind.encode(text, TextPart{}, nullptr, tokens); });
  return tokens;
}

std::size_t Tokenizer::cut(std::string_view text) const {
  return implementation_->visit([&](const auto& kind) { return kind.cut(text); });
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens, bool show_special) const {
  for (const std::int32_t token : tokens) {
    require(token >= 0 && token < vocab(), "token {} is not in the tokenizer's vocabulary of {}", token, vocab());
  }
  return implementation_->visit([&](const auto& kind) { return kind.decode(tokens, show_special); });
}

std::optional<std::int32_t> Tokenizer::token(std::string_view name) const {
  return implementation_->visit([&](const auto& kind) { return kind.id(name); });
}

void TextEncoder::encode(std::string_view text, std::vector<std::int32_t>& tokens, TextPart part) {
  tokenizer_.implementation_->visit([&](const auto& kind) { kind.encode(text, part, &words_, tokens); });
}

void TextEncoder::encode(const MarkedText& text, TextPart part, std::vector<std::int32_t>& tokens,
                         std::vector<std::uint8_t>& marks) {
  tokenizer_.implementation_->visit([&](const auto& kind) { kind.encode(text, part, &words_, tokens, marks); });
}

}  // namespace lyceum
