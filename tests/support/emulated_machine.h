#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "support/emulated_block.h"

namespace lyceum::test {

/// One thread of an EmulatedBlock. It has the members of the GPU's lib/kernels/cuda/machine.cuh.
class EmulatedMachine {
 public:
  EmulatedMachine(EmulatedBlock& block, int thread) : block_(&block), thread_(thread) {}

  int thread() const { return thread_; }
  void sync() const {
    self().at_barrier = true;
    block_->leave(false);
  }
  void sync_warp() const {
    block_->meet_warp(nullptr, [](auto&) {});
  }
  template <class T>
  T* shared(int offset) const {
    return reinterpret_cast<T*>(address_of(offset, sizeof(T)));
  }

  void copy_16(int to, const void* from, bool present) const { copy(to, 16, from, present); }
  void copy_4(int to, const void* from, bool present) const { copy(to, 4, from, present); }
  void wait() const { finish(taken_copies()); }

  void load_matrices(std::uint32_t (&words)[4], int offset) const { load(words, offset, false); }
  void load_matrices_transposed(std::uint32_t (&words)[4], int offset) const { load(words, offset, true); }

  void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) const {
    Multiply mine{a, {b0, b1}, c};
    block_->meet_warp(&mine, [](const auto& all) { multiply(all); });
  }

  template <class T>
  T from_lane_xor(T value, int mask) const {
    struct Mine {
      T value;
      int mask;
      mutable T result;
    } mine{value, mask, {}};
    block_->meet_warp(&mine, [](const auto& all) {
      for (std::size_t lane = 0; lane < 32; ++lane) {
        const auto* to = static_cast<const Mine*>(all[lane]);
        to->result = static_cast<const Mine*>(all[lane ^ static_cast<std::size_t>(to->mask)])->value;
      }
    });
    return mine.result;
  }
  std::uint32_t pack(float low, float high) const {
    return bfloat16(low).bits | static_cast<std::uint32_t>(bfloat16(high).bits) << 16;
  }
  void unpack(std::uint32_t word, float& low, float& high) const { low = half(word, 0), high = half(word, 1); }

  float larger(float a, float b) const { return std::fmax(a, b); }
  float exp2(float x) const { return std::exp2(x); }
  float log(float x) const { return std::log(x); }

 protected:
  EmulatedBlock& block() const { return *block_; }
  std::vector<EmulatedBlock::Copy> taken_copies() const { return std::exchange(self().copies, {}); }
  void finish(const std::vector<EmulatedBlock::Copy>& copies) const {
    for (const auto& [to, bytes, from] : copies) {
      const auto count = static_cast<std::size_t>(bytes);
      from ? std::memcpy(address_of(to, count), from, count) : std::memset(address_of(to, count), 0, count);
      note_unpublished(to);
    }
  }
  void note_unpublished(int to) const {
    const auto chunk = static_cast<std::size_t>(to) / 16;
    block_->copied_[chunk] = ++block_->copies_;
    self().unpublished.push_back(chunk);
  }
  void require_published(int offset) const {
    require(block_->copied_[static_cast<std::size_t>(offset) / 16] <=
                block_->published_[static_cast<std::size_t>(thread_ / EmulatedBlock::warpgroup)],
            "reads memory whose writes are not visible yet: a barrier or fence is missing");
  }
  void require_published_by_writer(int offset) const {
    require(block_->copied_[static_cast<std::size_t>(offset) / 16] == 0,
            "copies memory whose writes are not visible yet: a fence of the writer is missing");
  }
  void publish() const {
    for (const std::size_t chunk : std::exchange(self().unpublished, {})) block_->copied_[chunk] = 0;
    block_->published_[static_cast<std::size_t>(thread_ / EmulatedBlock::warpgroup)] = block_->copies_;
  }
  void wait_for(EmulatedBlock::Barrier& barrier, std::uint32_t parity) const {
    self().barrier = &barrier;
    self().parity = parity;
    if (!barrier.ended(parity)) block_->leave(false);
    self().barrier = nullptr;
  }
  std::byte* address_of(int offset, std::size_t bytes) const {
    require(offset >= 0 && static_cast<std::size_t>(offset) + bytes <= block_->shared_.size() &&
                static_cast<std::size_t>(offset) % bytes == 0,
            "{} bytes at offset {} are misaligned or outside of {} bytes of shared memory", bytes, offset,
            block_->shared_.size());
    return block_->shared_.data() + offset;
  }
  static float half(std::uint32_t word, int which) {
    bfloat16 value;
    value.bits = static_cast<std::uint16_t>(word >> (16 * which));
    return static_cast<float>(value);
  }
  EmulatedBlock::Thread& self() const { return block_->threads_[static_cast<std::size_t>(thread_)]; }

 private:
  struct Multiply {
    const std::uint32_t (&a)[4];
    std::uint32_t b[2];
    float (&c)[4];
  };

  void copy(int to, int bytes, const void* from, bool present) const {
    require(reinterpret_cast<std::uintptr_t>(from) % static_cast<std::uintptr_t>(bytes) == 0,
            "a copy of {} bytes from the misaligned address {}", bytes, reinterpret_cast<std::uintptr_t>(from));
    self().copies.push_back({to, bytes, present ? from : nullptr});
  }

  /// Loads four 8 × 8 matrices of 16-bit elements as ldmatrix does [PTX ISA, ldmatrix]. Lane 8 i + r passes the address
  /// of row r of matrix i. Word i of lane l receives elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of matrix i;
  /// with `transposed`, of its column l / 4.
  void load(std::uint32_t (&words)[4], int offset, bool transposed) const {
    struct Mine {
      const std::byte* row;
      std::uint32_t (&words)[4];
    } mine{address_of(offset, 16), words};
    block_->meet_warp(&mine, [transposed](const auto& all) {
      const auto element = [&](int matrix, int row, int col) {
        std::uint16_t bits;
        std::memcpy(&bits, static_cast<const Mine*>(all[static_cast<std::size_t>(8 * matrix + row)])->row + 2 * col, 2);
        return static_cast<std::uint32_t>(bits);
      };
      for (int lane = 0; lane < 32; ++lane) {
        const int outer = lane / 4, inner = 2 * (lane % 4);
        for (int i = 0; i < 4; ++i) {
          static_cast<const Mine*>(all[static_cast<std::size_t>(lane)])->words[i] =
              transposed ? element(i, inner, outer) | element(i, inner + 1, outer) << 16
                         : element(i, outer, inner) | element(i, outer, inner + 1) << 16;
        }
      }
    });
  }

  /// Multiplies the matrices in the registers of a warp, as the formulas of [PTX ISA, Matrix Fragments for mma.m16n8k16
  /// with floating point type] state, with groupID = lane >> 2 and threadID_in_group = lane % 4.
  static void multiply(const std::vector<const void*>& all) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const auto& from = *static_cast<const Multiply*>(all[static_cast<std::size_t>(lane)]);
      const int group = lane >> 2, in_group = lane % 4;
      for (int i = 0; i < 8; ++i) {
        const int row = (i < 2 || (4 <= i && i < 6)) ? group : group + 8;
        const int col = i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8;
        a[row][col] = half(from.a[i / 2], i % 2);
      }
      for (int i = 0; i < 4; ++i) {
        b[i < 2 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8][group] = half(from.b[i / 2], i % 2);
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      auto& to = *static_cast<const Multiply*>(all[static_cast<std::size_t>(lane)]);
      const int group = lane >> 2, in_group = lane % 4;
      for (int i = 0; i < 4; ++i) {
        const int row = i < 2 ? group : group + 8, col = in_group * 2 + (i & 1);
        float sum = to.c[i];
        for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][col];
        to.c[i] = sum;
      }
    }
  }

  EmulatedBlock* block_;
  int thread_;
};

}  // namespace lyceum::test
