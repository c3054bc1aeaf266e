#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/error.h"

namespace lyceum {

/// The token files of Megatron-LM: PREFIX.bin has the tokens, PREFIX.idx says where sequences and documents begin.
///
/// Layout of the `.idx`, little-endian and unaligned: magic, u64 version, u8 type, u64 sequences, u64 documents (with
/// the closing boundary), i32 lengths[sequences], i64 byte offsets[sequences], i64 first sequences[documents].
namespace megatron {

constexpr const char* tokens_ending = ".bin";
constexpr const char* index_ending = ".idx";

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

/// Calls `f.template operator()<T>()` with the C++ type of an integer type.
template <class F>
decltype(auto) dispatch(const Type& type, F&& f) {
  switch (type.code) {
    case 1: return f.template operator()<std::uint8_t>();
    case 2: return f.template operator()<std::int8_t>();
    case 3: return f.template operator()<std::int16_t>();
    case 4: return f.template operator()<std::int32_t>();
    case 5: return f.template operator()<std::int64_t>();
    case 8: return f.template operator()<std::uint16_t>();
    default: fail(ExitCode::failed, "{} is not a type of tokens", type.name);
  }
}

/// A type whose code in DeepSpeed differs from its code in Megatron; the rest of the format is the same.
struct DeepSpeedType {
  std::uint8_t code;
  std::int64_t bytes;
  std::string_view name;
  std::uint8_t megatron_code;  // of the same bytes
};
constexpr std::array<DeepSpeedType, 3> deepspeed_types{{{6, 2, "uint16", 8}, {7, 4, "uint32", 4}, {8, 8, "uint64", 5}}};

}  // namespace megatron

}  // namespace lyceum
