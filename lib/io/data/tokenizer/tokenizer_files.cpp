#include "io/data/tokenizer/tokenizer_files.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "io/data/tokenizer/json/regex.h"
#include "io/data/tokenizer/sentencepiece/piece_model.h"
#include "io/data/tokenizer/tokenizer.h"
#include "io/files/whole_file.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

using Json = nlohmann::ordered_json;

/// Returns the merges of a byte-pair model as transformers derives them: for each piece, each way to divide it into two
/// pieces, in descending order of the piece's score.
Json merges_of(const PieceModel& model) {
  std::unordered_map<std::string_view, std::size_t> ids;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].kind == PieceModel::normal) ids.emplace(model.pieces[id].text, id);
  }
  struct Merge {
    float score;
    std::size_t left, right;
  };
  std::vector<Merge> merges;
  for (const auto& [text, id] : ids) {
    for (std::size_t cut = utf8_length(text, 0), length = cut; length > 0 && cut < text.size(); cut += length) {
      const auto left = ids.find(text.substr(0, cut)), right = ids.find(text.substr(cut));
      if (left != ids.end() && right != ids.end())
        merges.push_back({model.pieces[id].score, left->second, right->second});
      length = utf8_length(text, cut);
    }
  }
  std::ranges::sort(merges, {}, [](const Merge& each) { return std::tuple(-each.score, each.left, each.right); });
  Json list = Json::array();
  for (const Merge& each : merges) list.push_back({model.pieces[each.left].text, model.pieces[each.right].text});
  return list;
}

Json added_token(const PieceModel::Piece& piece) {
  return {{"content", piece.text},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false},
          {"normalized", piece.kind == PieceModel::user_defined},
          {"special", piece.kind != PieceModel::user_defined}};
}

std::string unknown_piece(const PieceModel& model) {
  const auto found = std::ranges::find(model.pieces, PieceModel::unknown, &PieceModel::Piece::kind);
  return found == model.pieces.end() ? "<unk>" : std::string(found->text);
}

Json replacement(std::string_view from, std::string_view to, const char* kind = "String") {
  return {{"type", "Replace"}, {"pattern", {{kind, from}}}, {"content", to}};
}

/// True if tokenizer_json() can express the model, so that it gives the same tokens.
bool has_tokenizer_json(const PieceModel& model) {
  const auto& [charsmap, adds_space, joins_spaces, marks_spaces] = model.normalization;
  const auto odd_symbol = [&](std::string_view symbol) {
    return symbol.find(' ') != std::string_view::npos || (joins_spaces && symbol.find(space_mark) != symbol.npos);
  };
  const auto unused = [](const PieceModel::Piece& piece) { return piece.kind == PieceModel::unused; };
  return model.segmentation == PieceModel::Segmentation::bpe && charsmap.empty() &&
         model.denormalization.charsmap.empty() && marks_spaces && !model.space_behind &&
         std::ranges::none_of(symbols_of(model), odd_symbol) && std::ranges::none_of(model.pieces, unused);
}

/// Returns the normalizers for `tokenizers`. They are applied to texts that contain user-defined symbols, and also to
/// each symbol alone, when `tokenizers` computes the form of it that it searches for. No space must be added in front
/// of the latter.
Json normalizers_of(const PieceModel& model) {
  const std::string mark(space_mark);
  Json all = Json::array();
  if (model.normalization.joins_spaces) {
    all.push_back(replacement("\\A +|[ " + mark + "]+\\z", "", "Regex"));
    all.push_back(replacement("  +", " ", "Regex"));
  }
  if (model.normalization.adds_space) {
    const std::vector<std::string_view> symbols = symbols_of(model);
    std::string alone;
    for (const std::string_view symbol : symbols) alone += (alone.empty() ? "" : "|") + Regex::quoted(symbol);
    if (symbols.empty()) {
      all.push_back({{"type", "Prepend"}, {"prepend", mark}});
    } else {
      all.push_back(replacement("\\A(?!(?:" + alone + ")\\z)(?=(?m:.))", mark, "Regex"));
    }
  }
  all.push_back(replacement(" ", mark));
  return all;
}

/// Returns the post-processor that adds the piece `bos` before each text; null if there is no such piece.
Json post_processor_of(const PieceModel& model, const std::string& bos) {
  const auto found = std::ranges::find(model.pieces, bos, &PieceModel::Piece::text);
  if (found == model.pieces.end()) return nullptr;
  const auto part = [](const char* kind, const std::string& id, int text) {
    return Json{{kind, {{"id", id}, {"type_id", text}}}};
  };
  const Json begin = part("SpecialToken", bos, 0), one = part("Sequence", "A", 0);
  const Json token{{"id", bos}, {"ids", {found - model.pieces.begin()}}, {"tokens", {bos}}};
  return {{"type", "TemplateProcessing"},
          {"single", Json::array({begin, one})},
          {"pair", Json::array({begin, one, part("SpecialToken", bos, 1), part("Sequence", "B", 1)})},
          {"special_tokens", {{bos, token}}}};
}

/// Returns a tokenizer.json for a model, which adds the token `bos` before each text, if there is one.
Json tokenizer_json(const PieceModel& model, const std::string& bos) {
  const std::string mark(space_mark);
  Json added = Json::array();
  std::vector<std::pair<std::string, Json>> vocabulary;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const PieceModel::Piece& piece = model.pieces[id];
    vocabulary.emplace_back(piece.text, id);
    if (!piece.added()) continue;
    added.push_back({{"id", id}});
    added.back().update(added_token(piece));
  }
  Json decoders = Json::array({replacement(mark, " ")});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (model.normalization.adds_space || model.normalization.joins_spaces) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  Json pairs{{"type", "BPE"},
             {"dropout", nullptr},
             {"unk_token", unknown_piece(model)},
             {"continuing_subword_prefix", nullptr},
             {"end_of_word_suffix", nullptr},
             {"fuse_unk", true},
             {"byte_fallback", true},
             {"ignore_merges", false}};
  pairs["vocab"] = Json::object_t(vocabulary.begin(), vocabulary.end());
  pairs["merges"] = merges_of(model);
  Json json{{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  json["added_tokens"] = std::move(added);
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers_of(model)}};
  json["pre_tokenizer"] = nullptr;
  json["post_processor"] = post_processor_of(model, bos);
  json["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  json["model"] = std::move(pairs);
  return json;
}

/// Returns the tokenizer_config.json for a SentencePiece model. `tokenizer_class`: LlamaTokenizer converts
/// tokenizer.model, and constructs its own pipeline even if there is a tokenizer.json; PreTrainedTokenizerFast uses the
/// tokenizer.json unchanged.
Json tokenizer_config(const PieceModel& model, std::int32_t end_of_document, const char* tokenizer_class) {
  Json added = Json::object();
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].added()) added[std::to_string(id)] = added_token(model.pieces[id]);
  }
  return {{"tokenizer_class", tokenizer_class},
          {"added_tokens_decoder", added},
          {"add_bos_token", false},
          {"add_eos_token", false},
          {"add_prefix_space", model.normalization.adds_space},
          {"legacy", false},
          {"clean_up_tokenization_spaces", false},
          {"bos_token", nullptr},
          {"eos_token", model.pieces.at(static_cast<std::size_t>(end_of_document)).text},
          {"unk_token", unknown_piece(model)},
          {"pad_token", nullptr}};
}

/// Returns the tokenizer_config.json for a tokenizer.json, which contains everything except the end-of-text token.
Json tokenizer_config(const Json& json, std::int32_t end_of_document) {
  std::string end;
  for (const Json& token : json.value("added_tokens", Json::array())) {
    if (token.at("id") == end_of_document) end = token.at("content");
  }
  return {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"eos_token", end}};
}

}  // namespace

TokenizerFiles tokenizer_files(const std::filesystem::path& file, const std::string& bos) {
  TokenizerFiles made;
  made.end_of_document = Tokenizer(file).end_of_document();
  const std::string bytes = read_whole_file(file);
  if (Tokenizer::is_json(bytes)) {
    made.files["tokenizer.json"] = bytes;
    made.files["tokenizer_config.json"] =
        json_text(tokenizer_config(Json::parse(bytes), made.end_of_document), 2) + '\n';
    return made;
  }
  const PieceModel model(bytes);
  made.files["tokenizer.model"] = bytes;
  const bool has_json = has_tokenizer_json(model);
  const char* const tokenizer_class = has_json ? "PreTrainedTokenizerFast" : "LlamaTokenizer";
  made.files["tokenizer_config.json"] =
      json_text(tokenizer_config(model, made.end_of_document, tokenizer_class), 2) + '\n';
  if (has_json) {
    made.files["tokenizer.json"] = json_text(tokenizer_json(model, bos), 1) + '\n';
  } else {
    made.notes.push_back(
        "tokenizer  tokenizer.model only: tokenizer.json cannot represent it, so encode with the package "
        "sentencepiece; transformers converts it, which may give different tokens");
  }
  return made;
}

}  // namespace lyceum
