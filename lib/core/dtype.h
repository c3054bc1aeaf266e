#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/error.h"

namespace lyceum {

/// A bfloat16: the upper half of a float, with 8 exponent and 7 mantissa bits. Conversion from float rounds to nearest
/// even and keeps NaN.
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const auto rounded = static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
    const auto quiet_nan = static_cast<std::uint16_t>((word >> 16) | 0x40u);
    bits = (word & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded;
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// Returns `value` cast to T. Use it inside `#pragma omp simd` loops: a cast to bfloat16 there leaves a temporary that
/// keeps GCC 12 from vectorising the loop.
template <class T, class From>
T round_to(From value) {
  return static_cast<T>(value);
}

enum class DType : std::uint8_t { f32, bf16, f64, i32, i64, u8 };

/// Returns the size of an element in bytes.
constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

std::string_view name_of(DType type);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<bfloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <class T>
constexpr DType dtype_of = DTypeOf<std::remove_cv_t<T>>::value;

/// The type of sums over elements of T, and of the gradients of parameters of type T: float for bfloat16, else T.
template <class T>
struct AccumulatorOf {
  using type = T;
};
template <>
struct AccumulatorOf<bfloat16> {
  using type = float;
};
template <class T>
using Accumulator = typename AccumulatorOf<std::remove_cv_t<T>>::type;

constexpr DType accumulator_of(DType type) { return type == DType::bf16 ? DType::f32 : type; }

/// Returns `f.template operator()<A>()` with A = float or double, according to `type`. Throws an Error for other types.
template <class F>
decltype(auto) dispatch_accumulator(DType type, F&& f) {
  if (type == DType::f64) return f.template operator()<double>();
  require(type == DType::f32, "sums cannot be kept in {}, only in f32 or f64", name_of(type));
  return f.template operator()<float>();
}

/// Returns `f.template operator()<T>()` with T = float, bfloat16 or double, according to `type`. Throws an Error for
/// integer types.
template <class F>
decltype(auto) dispatch_float(DType type, F&& f) {
  switch (type) {
    case DType::f32: return f.template operator()<float>();
    case DType::bf16: return f.template operator()<bfloat16>();
    case DType::f64: return f.template operator()<double>();
    default: fail(ExitCode::failed, "{} is not a floating-point type", name_of(type));
  }
}

}  // namespace lyceum
