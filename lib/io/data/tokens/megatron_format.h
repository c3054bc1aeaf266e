#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lyceum {

/// Layout of Megatron's `.idx`, little-endian and unaligned: magic, u64 version, u8 type, u64 sequences, u64 documents
/// (with the closing boundary), i32 lengths[sequences], i64 byte offsets[sequences], i64 first sequences[documents].
///
/// `PREFIX.mask`, which is not part of the format, is next to them if a loss counts only some tokens: a byte for each
/// token of the `.bin`, 1 where its prediction counts and 0 where it does not. Without it all of them count.
namespace token_format {

constexpr std::string_view magic{"MMIDIDX\0\0", 9};
constexpr std::uint64_t version = 1;
constexpr std::size_t code_at = magic.size() + 8;  // of the type
constexpr std::size_t header_bytes = code_at + 1 + 8 + 8;

struct Type {
  std::uint8_t code;
  std::size_t bytes;
  std::string_view name;
  bool integer;
};
constexpr std::array<Type, 8> types{{{1, 1, "uint8", true},
                                     {2, 1, "int8", true},
                                     {3, 2, "int16", true},
                                     {4, 4, "int32", true},
                                     {5, 8, "int64", true},
                                     {6, 8, "float64", false},
                                     {7, 4, "float32", false},
                                     {8, 2, "uint16", true}}};
constexpr std::uint8_t code_i32 = 4, code_u16 = 8;

/// A type whose code in DeepSpeed differs from its code in Megatron; the rest of the format is the same.
struct DeepSpeedType {
  std::uint8_t code;
  std::int64_t bytes;
  std::string_view name;
  std::uint8_t megatron_code;  // of the same bytes
};
constexpr std::array<DeepSpeedType, 3> deepspeed_types{{{6, 2, "uint16", 8}, {7, 4, "uint32", 4}, {8, 8, "uint64", 5}}};

}  // namespace token_format

}  // namespace lyceum
