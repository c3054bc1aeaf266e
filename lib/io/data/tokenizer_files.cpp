#include "io/data/tokenizer_files.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "io/data/tokenizer.h"
#include "io/files/whole_file.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

using Json = nlohmann::ordered_json;

/// A field of a serialised protocol buffer: a number, or bytes.
struct ProtoField {
  std::uint64_t tag = 0, number = 0;
  std::string_view bytes = {};
};

/// The fields of a sound message, in their order. SentencePiece does not install its sentencepiece_model.proto, and its
/// library does not say how a model treats text. https://protobuf.dev/programming-guides/encoding
std::vector<ProtoField> proto_fields(std::string_view message) {
  std::vector<ProtoField> fields;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0; !message.empty() && shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.front());
      message.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (!message.empty()) {
    const std::uint64_t key = varint();
    ProtoField field{.tag = key >> 3};
    std::uint64_t length = 0;
    switch (key & 7) {
      case 0: field.number = varint(); break;
      case 1: length = 8; break;
      case 2: length = varint(); break;
      default: length = 4;
    }
    field.bytes = message.substr(0, length);
    message.remove_prefix(field.bytes.size());
    fields.push_back(field);
  }
  return fields;
}

/// What sentencepiece_model.proto says of a model, as far as it is needed; numbers are that file's.
struct PieceModel {
  enum Kind : std::uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string_view text;
    float score = 0;
    Kind kind = normal;
    /// Found in a text before all others.
    bool whole() const { return kind == unknown || kind == control || kind == user_defined; }
  };
  std::vector<Piece> pieces;
  bool by_pairs = false, has_charsmap = false, space_in_front = true, joins_spaces = true, marks_spaces = true,
       space_behind = false;

  /// Views of `bytes`.
  explicit PieceModel(std::string_view bytes) {
    for (const ProtoField& field : proto_fields(bytes)) {
      if (field.tag == 1) pieces.push_back(piece_of(field.bytes));
      for (const ProtoField& own : proto_fields(field.tag == 2 || field.tag == 3 ? field.bytes : "")) {
        take(field.tag == 2, own);
      }
    }
  }

 private:
  static Piece piece_of(std::string_view message) {
    Piece piece;
    for (const ProtoField& field : proto_fields(message)) {
      if (field.tag == 1) piece.text = field.bytes;
      if (field.tag == 2 && field.bytes.size() == sizeof(float)) {
        std::memcpy(&piece.score, field.bytes.data(), sizeof(float));
      }
      if (field.tag == 3) piece.kind = static_cast<Kind>(field.number);
    }
    return piece;
  }
  void take(bool of_trainer, const ProtoField& field) {
    if (of_trainer) {
      if (field.tag == 3) by_pairs = field.number == 2;
      if (field.tag == 24) space_behind = field.number;
    } else {
      if (field.tag == 2) has_charsmap = !field.bytes.empty();
      if (field.tag == 3) space_in_front = field.number;
      if (field.tag == 4) joins_spaces = field.number;
      if (field.tag == 5) marks_spaces = field.number;
    }
  }
};

/// Two pieces of one, for each way to cut it, best pieces first, as transformers makes merges of such a model.
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
  return {{"content", piece.text}, {"single_word", false}, {"lstrip", false},
          {"rstrip", false},       {"normalized", false},  {"special", piece.kind != PieceModel::user_defined}};
}

std::string unknown_piece(const PieceModel& model) {
  const auto found = std::ranges::find(model.pieces, PieceModel::unknown, &PieceModel::Piece::kind);
  return found == model.pieces.end() ? "<unk>" : std::string(found->text);
}

Json replacement(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

/// A model of the package `tokenizers`.
Json tokenizer_json(const PieceModel& model) {
  constexpr const char* mark = "\xE2\x96\x81";  // U+2581, which represents a space
  Json added = Json::array();
  std::vector<std::pair<std::string, Json>> vocabulary;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const PieceModel::Piece& piece = model.pieces[id];
    vocabulary.emplace_back(piece.text, id);
    if (!piece.whole()) continue;
    added.push_back({{"id", id}});
    added.back().update(added_token(piece));
  }
  Json normalizers = Json::array(), decoders = Json::array({replacement(mark, " ")});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (model.space_in_front) {
    normalizers.push_back({{"type", "Prepend"}, {"prepend", mark}});
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  normalizers.push_back(replacement(" ", mark));
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
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::move(normalizers)}};
  json["pre_tokenizer"] = nullptr;
  json["post_processor"] = nullptr;
  json["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  json["model"] = std::move(pairs);
  return json;
}

Json tokenizer_config(const PieceModel& model, std::int32_t end_of_document) {
  Json added = Json::object();
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].whole()) added[std::to_string(id)] = added_token(model.pieces[id]);
  }
  return {{"tokenizer_class", "LlamaTokenizer"},
          {"added_tokens_decoder", added},
          {"add_bos_token", false},
          {"add_eos_token", false},
          {"add_prefix_space", model.space_in_front},
          {"legacy", false},
          {"clean_up_tokenization_spaces", false},
          {"bos_token", nullptr},
          {"eos_token", model.pieces.at(static_cast<std::size_t>(end_of_document)).text},
          {"unk_token", unknown_piece(model)},
          {"pad_token", nullptr}};
}

/// Of a tokenizer.json, which has all but the token that ends a document.
Json tokenizer_config(const Json& json, std::int32_t end_of_document) {
  std::string end;
  for (const Json& token : json.value("added_tokens", Json::array())) {
    if (token.at("id") == end_of_document) end = token.at("content");
  }
  return {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"eos_token", end}};
}

}  // namespace

TokenizerFiles tokenizer_files(const std::filesystem::path& file) {
  TokenizerFiles made;
  made.end_of_document = Tokenizer(file).end_of_document();
  const std::string bytes = read_whole_file(file);
  if (bytes.starts_with('{')) {
    made.files["tokenizer.json"] = bytes;
    made.files["tokenizer_config.json"] =
        json_text(tokenizer_config(Json::parse(bytes), made.end_of_document), 2) + '\n';
    return made;
  }
  const PieceModel model(bytes);
  made.files["tokenizer.model"] = bytes;
  made.files["tokenizer_config.json"] = json_text(tokenizer_config(model, made.end_of_document), 2) + '\n';
  const bool plain = !model.has_charsmap && !model.joins_spaces && model.marks_spaces && !model.space_behind;
  if (model.by_pairs && plain) {
    made.files["tokenizer.json"] = json_text(tokenizer_json(model), 1) + '\n';
  } else {
    made.notes.push_back(
        "tokenizer  without tokenizer.json, which is written only for byte-pair encoding without normalisation: "
        "transformers converts tokenizer.model");
  }
  return made;
}

}  // namespace lyceum
