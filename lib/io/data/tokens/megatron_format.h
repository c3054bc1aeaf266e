#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/error.h"

namespace lyceum {

/// The token files of Megatron-LM. PREFIX.bin has the tokens, PREFIX.idx the positions at which sequences and documents
/// begin.
///
/// The `.idx` is little-endian and unaligned. Its fields are, in order:
///
/// - magic, u64 version, u8 type code,
/// - u64 number of sequences, u64 number of document boundaries (documents + 1),
/// - i32 length of each sequence in tokens,
/// - i64 byte offset of each sequence in the `.bin`,
/// - i64 for each document, the index of its first sequence; then the number of sequences.
namespace megatron {

constexpr const char* tokens_ending = ".bin";
constexpr const char* index_ending = ".idx";

constexpr std::string_view magic{"MMIDIDX\0\0", 9};
constexpr std::uint64_t version = 1;
constexpr std::size_t code_at = magic.size() + 8;  // byte offset of the type code
constexpr std::size_t header_bytes = code_at + 1 + 8 + 8;

/// The type of the tokens in a `.bin`.
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

/// Calls `f.template operator()<T>()`, where T is the C++ type for `type`, and returns its result. `type` is an integer
/// type.
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

/// A type whose code in DeepSpeed's files differs from its code in Megatron's. The rest of the format is the same.
struct DeepSpeedType {
  std::uint8_t code;
  std::int64_t bytes;
  std::string_view name;
  std::uint8_t megatron_code;  // of a type with the same number of bytes
};
constexpr std::array<DeepSpeedType, 3> deepspeed_types{{{6, 2, "uint16", 8}, {7, 4, "uint32", 4}, {8, 8, "uint64", 5}}};

}  // namespace megatron

}  // namespace lyceum
