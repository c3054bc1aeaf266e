#include "io/files/hdf5_checksum.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

namespace lyceum::hdf5 {

namespace {

using State = std::array<std::uint32_t, 3>;

/// mix() of lookup3.
void mix(State& state) {
  auto& [a, b, c] = state;
  a = (a - c) ^ std::rotl(c, 4);
  c += b;
  b = (b - a) ^ std::rotl(a, 6);
  a += c;
  c = (c - b) ^ std::rotl(b, 8);
  b += a;
  a = (a - c) ^ std::rotl(c, 16);
  c += b;
  b = (b - a) ^ std::rotl(a, 19);
  a += c;
  c = (c - b) ^ std::rotl(b, 4);
  b += a;
}

/// final() of lookup3.
void finish(State& state) {
  auto& [a, b, c] = state;
  c = (c ^ b) - std::rotl(b, 14);
  a = (a ^ c) - std::rotl(c, 11);
  b = (b ^ a) - std::rotl(a, 25);
  c = (c ^ b) - std::rotl(b, 16);
  a = (a ^ c) - std::rotl(c, 4);
  b = (b ^ a) - std::rotl(a, 14);
  c = (c ^ b) - std::rotl(b, 24);
}

/// Adds up to 12 bytes, as three little-endian numbers.
void add(State& state, std::string_view bytes) {
  State words{};
  std::memcpy(words.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < words.size(); ++i) state[i] += words[i];
}

}  // namespace

std::uint32_t checksum(std::string_view bytes) {
  State state{};
  state.fill(0xdeadbeef + static_cast<std::uint32_t>(bytes.size()));
  for (; bytes.size() > sizeof(State); bytes.remove_prefix(sizeof(State))) {
    add(state, bytes.substr(0, sizeof(State)));
    mix(state);
  }
  if (bytes.empty()) return state[2];
  add(state, bytes);
  finish(state);
  return state[2];
}

}  // namespace lyceum::hdf5
