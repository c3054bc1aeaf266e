#pragma once

#include <cstdint>
#include <utility>

namespace lyceum {

/// Number of Philox blocks that are computed together, one per lane of a vector.
constexpr std::int64_t philox_lanes = 16;

/// The four words of a Philox block. GCC vectorises loops over such values, but not over the array of philox4x32().
struct PhiloxWords {
  std::uint32_t a, b, c, d;
};

/// One round of philox4x32().
[[gnu::always_inline]] inline PhiloxWords next_philox_round(PhiloxWords x, std::uint32_t key0, std::uint32_t key1) {
  const std::uint64_t a = std::uint64_t{0xD2511F53u} * x.a, c = std::uint64_t{0xCD9E8D57u} * x.c;
  return {static_cast<std::uint32_t>(c >> 32) ^ x.b ^ key0, static_cast<std::uint32_t>(c),
          static_cast<std::uint32_t>(a >> 32) ^ x.d ^ key1, static_cast<std::uint32_t>(a)};
}

template <std::uint32_t... rounds>
[[gnu::always_inline]] inline PhiloxWords unrolled_philox(PhiloxWords x, std::uint32_t key0, std::uint32_t key1,
                                                          std::integer_sequence<std::uint32_t, rounds...>) {
  ((x = next_philox_round(x, key0 + rounds * 0x9E3779B9u, key1 + rounds * 0xBB67AE85u)), ...);
  return x;
}

/// Returns philox4x32() of a counter, with its rounds unrolled, for a loop over lanes.
[[gnu::always_inline]] inline PhiloxWords philox_in_lane(PhiloxWords counter, std::uint32_t key0, std::uint32_t key1) {
  return unrolled_philox(counter, key0, key1, std::make_integer_sequence<std::uint32_t, 10>());
}

}  // namespace lyceum
