#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "kernels/cuda/grouped_mma_tile.h"

namespace lyceum::test {

/// Emulates a thread block on the host for grouped::MmaTile. All threads take each step, one after the other.
/// Asynchronous copies arrive as late as the waits allow, shared memory is NaN at first, and races are counted:
/// accesses of different threads to the same memory, one of them a write, without a sync() in between.
class HostMmaBlock {
 public:
  using Thread = grouped::MmaThread;
  HostMmaBlock() : threads_(grouped::MmaTiling::threads), chunks_(grouped::MmaTiling::shared_bytes / 16) {
    for (int i = 0; i < grouped::MmaTiling::threads; ++i) threads_[static_cast<std::size_t>(i)].index = i;
    for (State& chunk : chunks_) std::memset(chunk.value.word, 0xff, 16);
  }

  template <class F>
  void each(F&& f) {
    for (Thread& thread : threads_) {
      thread_ = thread.index;
      f(thread);
    }
  }
  void sync() { ++epoch_; }
  void copy(int offset, const std::uint16_t* from, int count) {
    EXPECT_EQ(count == 0 ? 0 : reinterpret_cast<std::uintptr_t>(from) % 16, 0u) << "a copy that is not aligned";
    note_write(state(offset));
    open_.push_back({offset, fetch(from, count)});
  }
  void commit() { groups_.push_back(std::exchange(open_, {})); }
  template <int Pending>
  void wait() {
    while (groups_.size() > Pending) {
      for (const Copy& copy : groups_.front()) {
        note_write(state(copy.offset));
        state(copy.offset).value = copy.value;
      }
      groups_.erase(groups_.begin());
    }
  }
  grouped::Chunk fetch(const std::uint16_t* from, int count) const {
    grouped::Chunk chunk;
    std::memcpy(chunk.word, from, static_cast<std::size_t>(count) * 2);
    return chunk;
  }
  void store(int offset, const grouped::Chunk& chunk) {
    note_write(state(offset));
    state(offset).value = chunk;
  }

  /// Emulates ldmatrix of the PTX ISA. Lane 8 i + r supplies the address of row r of matrix i. Each lane gets elements
  /// 2 (lane % 4) and 2 (lane % 4) + 1 of row lane / 4 of each matrix, or of its transpose.
  template <bool Transposed, class Offset>
  void ldmatrix(Offset&& offset, int lane, std::uint32_t (&to)[4]) {
    for (int i = 0; i < 4; ++i) {
      std::uint32_t half[2];
      for (int element = 0; element < 2; ++element) {
        const int major = lane / 4, minor = lane % 4 * 2 + element;
        const int row = Transposed ? minor : major, col = Transposed ? major : minor;
        State& chunk = state(offset(8 * i + row));
        note_read(chunk);
        half[element] = chunk.value.word[col / 2] >> (16 * (col % 2)) & 0xffff;
      }
      to[i] = half[0] | half[1] << 16;
    }
  }

  /// Emulates mma.m16n8k16 of the PTX ISA for all warps: c += a · b, with the fragments that its lanes hold.
  void multiply() {
    for (std::size_t warp = 0; warp < threads_.size(); warp += 32) {
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) multiply_warp(&threads_[warp], i, j);
      }
    }
  }
  std::uint16_t bf16(float value) const { return bfloat16(value).bits; }
  int races() const { return races_; }

 private:
  struct State {
    grouped::Chunk value;
    int written = -1, writer = -1, read = -1, reader = -1;  // epochs and threads of the last write and the last read
  };
  struct Copy {
    int offset;
    grouped::Chunk value;
  };
  State& state(int offset) {
    EXPECT_EQ(offset % 16, 0);
    return chunks_.at(static_cast<std::size_t>(offset / 16));
  }
  void note_write(State& chunk) {
    races_ += chunk.read == epoch_ && chunk.reader != thread_;
    chunk.written = epoch_;
    chunk.writer = thread_;
  }
  void note_read(State& chunk) {
    races_ += chunk.written == epoch_ && chunk.writer != thread_;
    chunk.read = epoch_;
    chunk.reader = thread_;
  }
  static float value(std::uint32_t word, int half) {
    bfloat16 result;
    result.bits = static_cast<std::uint16_t>(word >> (16 * half));
    return static_cast<float>(result);
  }
  static void multiply_warp(Thread* warp, int i, int j) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane / 4, within = lane % 4;
      for (int half = 0; half < 2; ++half) {
        const int k = within * 2 + half;
        for (int r = 0; r < 4; ++r) a[group + 8 * (r % 2)][k + 8 * (r / 2)] = value(warp[lane].a[i][r], half);
        for (int r = 0; r < 2; ++r) b[k + 8 * r][group] = value(warp[lane].b[j / 2][j % 2 * 2 + r], half);
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      for (int r = 0; r < 4; ++r) {
        const int row = lane / 4 + 8 * (r / 2), col = lane % 4 * 2 + r % 2;
        float& sum = warp[lane].c[i][j][r];
        for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][col];
      }
    }
  }

  std::vector<Thread> threads_;
  std::vector<State> chunks_;
  std::vector<Copy> open_;
  std::vector<std::vector<Copy>> groups_;
  int epoch_ = 0, thread_ = 0, races_ = 0;
};

}  // namespace lyceum::test
