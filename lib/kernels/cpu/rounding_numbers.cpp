#include "kernels/cpu/rounding_numbers.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "kernels/cpu/philox_lanes.h"
#include "kernels/flat_blocks.h"

namespace lyceum {

namespace {

/// Writes the numbers of elements [first, first + count) of a logical tensor, at most flat_block.
void fill_elements(std::uint64_t key, std::uint64_t update, std::uint64_t first, std::int64_t count,
                   std::uint16_t* numbers) {
  constexpr auto per_block = static_cast<std::int64_t>(elements_per_random_block);
  constexpr std::int64_t most_blocks = (flat_block / per_block + 1 + philox_lanes - 1) / philox_lanes * philox_lanes;
  alignas(64) std::array<std::uint32_t, 4 * most_blocks> words;
  const std::uint64_t first_block = first / elements_per_random_block;
  const auto skipped = static_cast<std::int64_t>(first % elements_per_random_block);
  const auto key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
  const auto update0 = static_cast<std::uint32_t>(update), update1 = static_cast<std::uint32_t>(update >> 32);
  std::uint32_t* const to = words.data();
  for (std::int64_t b = 0; b * per_block < skipped + count; b += philox_lanes) {  // whole vectors, also at the end
#pragma omp simd
    for (std::int64_t l = 0; l < philox_lanes; ++l) {
      const std::uint64_t block = first_block + static_cast<std::uint64_t>(b + l);
      const PhiloxWords made = philox_in_lane(
          {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), update0, update1}, key0, key1);
      std::uint32_t* const place = to + 4 * (b + l);
      place[0] = made.a;
      place[1] = made.b;
      place[2] = made.c;
      place[3] = made.d;
    }
  }
  // On a little-endian machine the halves of the words, low half first, are the numbers in order.
  std::memcpy(numbers, reinterpret_cast<const unsigned char*>(to) + 2 * skipped, static_cast<std::size_t>(2 * count));
}

}  // namespace

void fill_rounding_numbers(const StateRounding& rounding, std::int64_t first_slice, std::int64_t slices,
                           std::int64_t first, std::int64_t last, std::uint16_t* numbers) {
  const RoundedSlice* const begin = rounding.slices.data() + first_slice;
  const auto update = static_cast<std::uint64_t>(rounding.update[0]);
  const RoundedSlice* slice = begin + slice_of(begin, slices, first);
  for (std::int64_t i = first; i < last;) {
    while (slice + 1 < begin + slices && slice->end <= i) ++slice;
    const std::int64_t left_in_row = slice->pitch - (i - slice->first) % slice->pitch;
    const std::int64_t left_in_slice = slice + 1 < begin + slices ? slice->end - i : last - i;
    const std::int64_t count = std::min({last - i, left_in_row, left_in_slice});
    fill_elements(slice->key, update, slice->element(i), count, numbers + (i - first));
    i += count;
  }
}

}  // namespace lyceum
