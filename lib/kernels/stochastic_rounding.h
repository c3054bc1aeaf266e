#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "core/dtype.h"
#include "core/random.h"
#include "kernels/cuda/host_device.h"

namespace lyceum {

// Stochastic rounding of optimizer states to bfloat16 [Gupta et al. 2015]. A float x between the neighbouring bfloat16
// numbers a and b, |a| <= |x| < |b|, is rounded to b with the probability (x - a) / (b - a) and to a otherwise. Its
// expected value is therefore x, so a sum of many small changes is right on average, although each of them may be too
// small to change a number that is rounded to nearest.
//
// The low 16 bits of x, as an integer, are (x - a) / (b - a) in units of 2^-16. The rounding adds a random integer in
// [0, 2^16) to the bits of x and drops the low half of the sum, so the probability is exact.
//
// The random integers are a pure function of seed, logical tensor, element of the whole tensor and number of the
// update: all meshes, all ZeRO stages and all repetitions of an update round the same way.

/// Maps a range of elements of a flat tensor to the elements of the logical tensor that it holds a slice of. The slices
/// of a flat tensor are in order and have no gaps between them: padding belongs to a neighbouring slice. Padding is
/// zero, which every random number rounds to zero.
struct RoundedSlice {
  std::int64_t end;     // first element of the flat tensor after the slice and its padding
  std::int64_t first;   // element at which the slice begins; may be outside of the flat tensor
  std::int64_t pitch;   // elements from one row to the next in memory
  std::int64_t origin;  // element of the logical tensor at `first`
  std::int64_t stride;  // elements from one row to the next in the logical tensor
  std::uint64_t key;    // rounding_key()

  /// Returns the element of the logical tensor that is element i of the flat tensor.
  LYCEUM_HOST_DEVICE std::uint64_t element(std::int64_t i) const {
    const std::int64_t row = (i - first) / pitch;
    return static_cast<std::uint64_t>(origin + row * stride + (i - first - row * pitch));
  }
};

/// The numbers that round the states of an update to bfloat16. Not read if the states have accumulator precision.
struct StateRounding {
  std::span<const RoundedSlice> slices = {};  // slices of all tensors, see UpdatedTensor::first_slice
  std::span<const std::int64_t> update = {};  // [1]: number of the update, counted from 1
};

/// Returns the Philox key of a logical tensor's roundings.
inline std::uint64_t rounding_key(std::uint64_t seed, std::string_view tensor) {
  const std::array<std::uint32_t, 4> words = Philox(seed, std::string("moments/").append(tensor)).block(0);
  return std::uint64_t{words[1]} << 32 | words[0];
}

/// Number of elements that share one Philox block: element e has the half e mod 2 of word (e / 2) mod 4 of block e / 8.
inline constexpr std::uint64_t elements_per_random_block = 8;

/// Returns the Philox block with the numbers of elements [8 · block, 8 · block + 8) of a logical tensor.
LYCEUM_HOST_DEVICE std::array<std::uint32_t, 4> rounding_block(std::uint64_t key, std::uint64_t update,
                                                               std::uint64_t block) {
  return philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                     static_cast<std::uint32_t>(update), static_cast<std::uint32_t>(update >> 32)},
                    {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
}
/// Returns the number in [0, 2^16) of element `element` from its Philox block.
LYCEUM_HOST_DEVICE std::uint32_t rounding_number(const std::array<std::uint32_t, 4>& block, std::uint64_t element) {
  return block[element / 2 % 4] >> (element % 2 * 16) & 0xffffu;
}

/// Returns the number that rounds state `state` of an element whose number is `number`: the number itself, or with its
/// bytes swapped. Each is uniform, which is all that an expected value depends on, and their correlation is 0.8 %.
LYCEUM_HOST_DEVICE std::uint32_t number_of_state(std::uint32_t number, std::size_t state) {
  return state == 0 ? number : (number << 8 | number >> 8) & 0xffffu;
}

/// Returns the bits of x rounded to bfloat16 with `number` in [0, 2^16). A bfloat16 number, an infinity and a NaN stay
/// as they are.
LYCEUM_HOST_DEVICE std::uint16_t rounded_bits(float x, std::uint32_t number) {
  std::uint32_t word = 0;
  std::memcpy(&word, &x, sizeof x);
  const auto rounded = static_cast<std::uint16_t>((word + number) >> 16);
  const auto quiet_nan = static_cast<std::uint16_t>(word >> 16 | 0x40u);
  return (word & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded;
}

/// Returns the index of the slice of element i among `count` slices in order.
LYCEUM_HOST_DEVICE std::int64_t slice_of(const RoundedSlice* slices, std::int64_t count, std::int64_t i) {
  std::int64_t first = 0;
  while (first + 1 < count) {
    const std::int64_t middle = first + (count - first) / 2;  // slices[middle - 1] exists
    if (slices[middle - 1].end <= i) {
      first = middle;
    } else {
      count = middle;
    }
  }
  return first;
}

}  // namespace lyceum
