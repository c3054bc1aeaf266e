#include "io/data/tokenizer/sentencepiece/piece_model.h"

#include <algorithm>
#include <cstring>

namespace lyceum {

namespace {

/// A field of a serialised protocol buffer, which has either a number or bytes.
struct ProtoField {
  std::uint64_t tag = 0, number = 0;
  std::string_view bytes = {};
};

/// Returns the fields of a valid message, in order. Parsed here because SentencePiece does not install its
/// sentencepiece_model.proto, and its library does not expose how a model treats text.
/// https://protobuf.dev/programming-guides/encoding
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

PieceModel::Piece piece_of(std::string_view message) {
  PieceModel::Piece piece;
  for (const ProtoField& field : proto_fields(message)) {
    if (field.tag == 1) piece.text = field.bytes;
    if (field.tag == 2 && field.bytes.size() == sizeof(float)) {
      std::memcpy(&piece.score, field.bytes.data(), sizeof(float));
    }
    if (field.tag == 3) piece.kind = static_cast<PieceModel::Kind>(field.number);
  }
  return piece;
}

/// Reads a NormalizerSpec.
void take(PieceModel::Normalization& normalization, std::string_view message) {
  for (const ProtoField& field : proto_fields(message)) {
    if (field.tag == 2) normalization.charsmap = field.bytes;
    if (field.tag == 3) normalization.adds_space = field.number != 0;
    if (field.tag == 4) normalization.joins_spaces = field.number != 0;
    if (field.tag == 5) normalization.marks_spaces = field.number != 0;
  }
}

}  // namespace

PieceModel::PieceModel(std::string_view bytes) {
  for (const ProtoField& field : proto_fields(bytes)) {
    if (field.tag == 1) pieces.push_back(piece_of(field.bytes));
    if (field.tag == 3) take(normalization, field.bytes);
    if (field.tag == 5) take(denormalization, field.bytes);
    for (const ProtoField& own : proto_fields(field.tag == 2 ? field.bytes : "")) {  // TrainerSpec
      if (own.tag == 3) segmentation = static_cast<Segmentation>(own.number);
      if (own.tag == 24) space_behind = own.number != 0;
      if (own.tag == 44) unknown_text = own.bytes;
    }
  }
}

std::vector<std::string_view> symbols_of(const PieceModel& model) {
  std::vector<std::string_view> symbols;
  for (const PieceModel::Piece& piece : model.pieces) {
    if (piece.kind == PieceModel::user_defined) symbols.push_back(piece.text);
  }
  return symbols;
}

}  // namespace lyceum
