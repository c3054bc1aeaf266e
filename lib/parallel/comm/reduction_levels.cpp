#include "parallel/comm/reduction_levels.h"

#include <algorithm>
#include <utility>

#include "parallel/comm/reduce_in_order.h"

namespace lyceum {

std::vector<int> reduction_radices(int ranks) {
  if (ranks <= 8) return {ranks};
  std::vector<int> radices;
  for (; ranks % 4 == 0; ranks /= 4) radices.push_back(4);
  for (int factor = 2; ranks > 1; ++factor) {
    if (factor * factor > ranks) factor = ranks;
    for (; ranks % factor == 0; ranks /= factor) radices.push_back(factor);
  }
  return radices;
}

std::vector<ReductionLevel> reduction_levels(int rank, int ranks) {
  std::vector<ReductionLevel> levels;
  int stride = 1, first = 0, slices = ranks;
  for (const int radix : reduction_radices(ranks)) {
    slices /= radix;
    levels.push_back(
        {.radix = radix, .stride = stride, .digit = rank / stride % radix, .first = first, .span = slices});
    first = levels.back().first_of(levels.back().digit);
    stride *= radix;
  }
  return levels;
}

std::vector<int> ranks_of_slices(int ranks) {
  std::vector<int> of_slices{0};  // the digits of the levels so far, the lowest digit varying least
  int stride = 1;
  for (const int radix : reduction_radices(ranks)) {
    std::vector<int> longer;
    longer.reserve(of_slices.size() * static_cast<std::size_t>(radix));
    for (const int lower : of_slices) {
      for (int digit = 0; digit < radix; ++digit) longer.push_back(lower + digit * stride);
    }
    of_slices = std::move(longer);
    stride *= radix;
  }
  return of_slices;
}

DType partial_sum_type(DType type) { return type == DType::bf16 ? DType::f32 : type; }

void reduce_by_levels(std::span<const std::byte* const> values, std::byte* out, std::int64_t count, DType type,
                      Reduction reduction) {
  const std::vector<int> radices = reduction_radices(static_cast<int>(values.size()));
  const DType partial = partial_sum_type(type);
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(partial);
  const std::size_t groups = values.size() / static_cast<std::size_t>(radices.front());
  std::vector<std::byte> partial_sums(radices.size() > 1 ? groups * bytes : 0);
  std::vector<const std::byte*> terms(values.begin(), values.end());
  for (std::size_t level = 0; level < radices.size(); ++level) {
    const bool last = level + 1 == radices.size();
    const auto radix = static_cast<std::size_t>(radices[level]);
    std::vector<const std::byte*> sums;
    for (std::size_t g = 0; g < terms.size() / radix; ++g) {
      std::byte* const sum =
          last ? out : partial_sums.data() + g * bytes;  // a term of this group, or of an earlier one
      reduce_in_order({.sources = std::span(terms).subspan(g * radix, radix), .type = level == 0 ? type : partial},
                      {.out = sum, .type = last ? type : partial}, count, reduction);
      sums.push_back(sum);
    }
    terms = std::move(sums);
  }
}

}  // namespace lyceum
