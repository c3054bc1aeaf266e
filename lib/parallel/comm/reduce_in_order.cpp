#include "parallel/comm/reduce_in_order.h"

#include <algorithm>
#include <array>

namespace lyceum {
namespace {

template <class T>
T reduce_pair(Reduction reduction, T a, T b) {
  switch (reduction) {
    case Reduction::sum: return a + b;
    case Reduction::max: return a > b || a != a ? a : b;  // a NaN propagates, in a or in b
    case Reduction::min: return a < b || a != a ? a : b;
  }
  return a;
}

/// T: type of the terms, R: of the result.
template <class T, class R, Reduction reduction>
void reduce_typed(std::span<const std::byte* const> sources, std::byte* out, std::int64_t count) {
  constexpr std::int64_t block = 1024;
  using A = Accumulator<T>;
  std::array<A, block> sum;
  for (std::int64_t first = 0; first < count; first += block) {
    const auto length = static_cast<std::size_t>(std::min(block, count - first));
    const auto part = [&](const std::byte* source) { return reinterpret_cast<const T*>(source) + first; };
    std::transform(part(sources[0]), part(sources[0]) + length, sum.begin(), [](T x) { return static_cast<A>(x); });
    for (const std::byte* source : sources.subspan(1)) {
      const T* terms = part(source);
      for (std::size_t i = 0; i < length; ++i) sum[i] = reduce_pair(reduction, sum[i], static_cast<A>(terms[i]));
    }
    std::transform(sum.begin(), sum.begin() + length, reinterpret_cast<R*>(out) + first,
                   [](A x) { return static_cast<R>(x); });
  }
}

template <class T, class R = T>
void reduce_typed(std::span<const std::byte* const> sources, std::byte* out, std::int64_t count, Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return reduce_typed<T, R, Reduction::sum>(sources, out, count);
    case Reduction::max: return reduce_typed<T, R, Reduction::max>(sources, out, count);
    case Reduction::min: return reduce_typed<T, R, Reduction::min>(sources, out, count);
  }
}

}  // namespace

bool reducible(DType type) { return type != DType::u8; }

void reduce_in_order(const Terms& terms, const Reduced& result, std::int64_t count, Reduction reduction) {
  const auto& [sources, type] = terms;
  if (type == DType::bf16 && result.type == DType::f32) {
    return reduce_typed<bfloat16, float>(sources, result.out, count, reduction);
  }
  if (type == DType::f32 && result.type == DType::bf16) {
    return reduce_typed<float, bfloat16>(sources, result.out, count, reduction);
  }
  require(type == result.type, "terms in {} cannot be reduced to {}", name_of(type), name_of(result.type));
  switch (type) {
    case DType::f32: return reduce_typed<float>(sources, result.out, count, reduction);
    case DType::bf16: return reduce_typed<bfloat16>(sources, result.out, count, reduction);
    case DType::f64: return reduce_typed<double>(sources, result.out, count, reduction);
    case DType::i32: return reduce_typed<std::int32_t>(sources, result.out, count, reduction);
    case DType::i64: return reduce_typed<std::int64_t>(sources, result.out, count, reduction);
    case DType::u8: fail(ExitCode::failed, "u8 cannot be reduced: only f32, bf16, f64, i32 and i64 can");
  }
}

}  // namespace lyceum
