#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "support/emulated_block.h"

namespace lyceum::test {

/// What EmulatedHopper loads boxes by: `lines` lines of `width` 16-bit elements, `stride` bytes apart; a box has 64
/// elements of `box_lines` lines.
struct EmulatedMap {
  const std::byte* data;
  std::int64_t stride;
  int width, lines, box_lines;
};

/// One thread of an EmulatedBlock with a Hopper GPU's products of warpgroups, barriers and loads; has the members of
/// lib/kernels/cuda/machine_hopper.cuh. A product is computed when it is waited for, not before, from what registers
/// and shared memory then hold: who changes them too early, or reads a result too early, gets wrong numbers. So are
/// copies from shared to global memory. Blocks run one after another: a block that waits for a later one is an error.
class EmulatedHopper : public EmulatedMachine {
 public:
  using EmulatedMachine::EmulatedMachine;

  std::int32_t block_index() const { return block().index_; }
  std::int32_t blocks() const { return block().blocks_; }
  int uniform(int value) const { return value; }
  int known_here(int value) const { return value; }
  std::uint32_t shared_address(int offset) const { return static_cast<std::uint32_t>(offset); }
  template <class T>
  void write_shared(int to, const T& value) const {
    *shared<T>(to) = value;
    note_unpublished(to);
  }
  void publish_copies() const { publish(); }
  void compute_before_wait(float) const {}
  template <class Values>
  void compute_here(Values&) const {}
  template <class... Operands>
  void begin_products(Operands&...) const {
    block().meet_group(nullptr, [](auto&) {});
  }
  void end_group() const {
    block().meet_group(nullptr, [&](auto&) { products().emplace_back(); });
  }
  template <int pending, class... Results>
  void wait_products(Results&...) const {
    block().meet_group(nullptr, [&](auto&) {
      auto& groups = products();
      while (groups.size() > pending + 1) {
        for (const auto& product : groups.front()) product();
        groups.erase(groups.begin());
      }
    });
  }

  template <int columns, bool a_across, bool b_across, int count>
  void multiply_shared(float (&d)[count][4], std::uint64_t a, std::uint64_t b, bool add) const {
    static_assert(columns <= 8 * count);
    begin(d, nullptr, [this, a, b, add](const std::vector<float*>& to, const auto&) {
      const auto row_of_a = [&](int row, int k) {
        return a_across ? by_summed_rows(a, k, row) : by_columns(a, row, k);
      };
      const auto col_of_b = [&](int col, int k) {
        return b_across ? by_summed_rows(b, k, col) : by_columns(b, col, k);
      };
      multiply<columns / 8>(to, add, row_of_a, col_of_b);
    });
  }
  template <int count>
  void multiply_words(float (&d)[count][4], const std::uint32_t (&a)[4], std::uint64_t b) const {
    begin(d, a, [this, b](const std::vector<float*>& to, const std::vector<const std::uint32_t*>& words) {
      const auto row_of_a = [&](int row, int k) { return word_of(words, row, k); };
      const auto col_of_b = [&](int col, int k) { return by_summed_rows(b, k, col); };
      multiply<count>(to, true, row_of_a, col_of_b);
    });
  }

  void begin_barrier(int offset, int arrivals) const {
    require(offset % 8 == 0, "a barrier at {}", offset);
    block().barriers_[offset] = {arrivals, arrivals, 0, 0, {}};
  }
  void publish_barriers() const {}
  void arrive(int offset) const { arrive_expecting(offset, 0); }
  void arrive_expecting(int offset, int bytes) const {
    EmulatedBlock::Barrier& barrier = barrier_at(offset);
    require(barrier.missing > 0, "one arrival too many");
    barrier.bytes += bytes;
    --barrier.missing;
    barrier.settle();
  }
  void arrive_after_copies(int offset) const {
    later(offset, [machine = *this, copies = taken_copies(), offset] {  // a thread may end before its copies
      machine.finish(copies);
      machine.arrive(offset);
    });
  }
  void wait_barrier(int offset, std::uint32_t parity) const {
    EmulatedBlock::Barrier& barrier = barrier_at(offset);
    wait_for(barrier, parity);
  }

  void acquire_map(const EmulatedMap*) const {}
  /// [PTX ISA, tensors]: elements outside are zeros; swizzled as wgmma reads.
  void load_box(int to, const EmulatedMap* map, int offset, int x, int y) const {
    require(to % 1024 == 0 && x >= 0 && y >= 0, "a box at {}, from {}, {}", to, x, y);
    later(offset, [machine = *this, to, map = *map, offset, x, y] {
      for (int line = 0; line < map.box_lines; ++line) {
        for (int element = 0; element < 64; ++element) {
          std::byte* at = machine.place(to + swizzled(line * 128 + element * 2), 2);
          if (x + element < map.width && y + line < map.lines) {
            std::memcpy(at, map.data + (y + line) * map.stride + 2 * (x + element), 2);
          } else {
            std::memset(at, 0, 2);
          }
        }
      }
      EmulatedBlock::Barrier& barrier = machine.barrier_at(offset);
      barrier.bytes -= map.box_lines * 128;
      barrier.settle();
    });
  }

  void begin_bulk_write(float* to, int from, int bytes) const { begin_bulk(to, from, bytes, false); }
  void begin_bulk_add(float* to, int from, int bytes) const { begin_bulk(to, from, bytes, true); }
  void wait_bulk_reads() const {
    for (const auto& copy : std::exchange(self().bulk, {})) copy();
  }
  void wait_bulk() const {
    wait_bulk_reads();
    self().bulk_under_way = false;
  }
  void wait_turn(const std::uint32_t* turns, int turn) const {
    require(*turns == static_cast<std::uint32_t>(turn), "waits at turn {} for turn {}: for a block that runs later",
            *turns, turn);
  }
  void pass_turn(std::uint32_t* turns, int turn) const {
    require(!self().bulk_under_way, "a turn ends before what was copied in it is there");
    *turns = static_cast<std::uint32_t>(turn) + 1;
  }

  template <int count>
  void give_registers() const {}
  template <int count>
  void take_registers() const {}
  template <class T>
  T read_only(const T* from) const {
    return read<T>(from);
  }
  void prefetch(const void*) const {}
  template <class T>
  T read(const void* from) const {
    require_aligned(from, sizeof(T));
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  template <class T>
  void write(void* to, const T& value) const {
    require_aligned(to, sizeof(T));
    std::memcpy(to, &value, sizeof value);
  }

 private:
  static void require_aligned(const void* at, std::size_t bytes) {
    require(reinterpret_cast<std::uintptr_t>(at) % bytes == 0, "{} bytes at an odd address", bytes);
  }
  EmulatedBlock::Barrier& barrier_at(int offset) const {
    const auto found = block().barriers_.find(offset);
    require(found != block().barriers_.end(), "no barrier at {}", offset);
    return found->second;
  }
  /// What the hardware does while the threads go on: when it is waited for, or at once.
  template <class Work>
  void later(int offset, Work&& work) const {
    if (block().order_ == EmulatedBlock::Order::descending) return work();
    barrier_at(offset).under_way.push_back(work);
  }
  void begin_bulk(float* to, int from, int bytes, bool add) const {
    require(bytes % 16 == 0, "{} bytes in bulk", bytes);
    require_aligned(to, 16);
    for (int byte = 0; byte < bytes; byte += 16) require_published(from + byte);
    const auto copy = [machine = *this, to, from, bytes, add] {
      for (int i = 0; i < bytes / 4; ++i) to[i] = *machine.shared<float>(from + 4 * i) + (add ? to[i] : 0.0f);
    };
    self().bulk_under_way = true;
    if (block().order_ == EmulatedBlock::Order::descending) return copy();
    self().bulk.push_back(copy);
  }
  EmulatedBlock::Products& products() const { return block().products_[static_cast<std::size_t>(thread() / 128)]; }

  template <int count, class Work>
  void begin(float (&d)[count][4], const std::uint32_t* a, Work&& work) const {
    const std::pair<float*, const std::uint32_t*> mine{&d[0][0], a};
    block().meet_group(&mine, [&](const std::vector<const void*>& all) {
      std::vector<float*> to;
      std::vector<const std::uint32_t*> words;
      for (const void* one : all) {
        const auto& pair = *static_cast<const std::pair<float*, const std::uint32_t*>*>(one);
        to.push_back(pair.first), words.push_back(pair.second);
      }
      products().back().push_back([work, to, words] { work(to, words); });
    });
  }

  /// d [64, 8 · count] of the threads' registers; a(row, k), b(col, k).
  template <int count, class A, class B>
  static void multiply(const std::vector<float*>& to, bool add, A&& a, B&& b) {
    std::array<std::array<float, 16>, 64> rows;
    std::array<std::array<float, 16>, 8 * count> cols;
    for (std::size_t i = 0; i < 64 * 16; ++i)
      rows[i / 16][i % 16] = a(static_cast<int>(i / 16), static_cast<int>(i % 16));
    for (std::size_t i = 0; i < 8 * count * 16; ++i) {
      cols[i / 16][i % 16] = b(static_cast<int>(i / 16), static_cast<int>(i % 16));
    }
    for (std::size_t row = 0; row < 64; ++row) {
      for (std::size_t col = 0; col < 8 * count; ++col) {
        float& sum = number(to, static_cast<int>(row), static_cast<int>(col));
        if (!add) sum = 0;
        for (std::size_t k = 0; k < 16; ++k) sum += rows[row][k] * cols[col][k];
      }
    }
  }

  /// [PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16"]: D and A, whose rows 16 w … lie with warp w.
  static float& number(const std::vector<float*>& threads, int row, int col) {
    const int thread = row / 16 * 32 + row % 8 * 4 + col % 8 / 2;
    return threads[static_cast<std::size_t>(thread)][col / 8 * 4 + row % 16 / 8 * 2 + col % 2];
  }
  static float word_of(const std::vector<const std::uint32_t*>& threads, int row, int k) {
    const int thread = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
    return half(threads[static_cast<std::size_t>(thread)][k / 8 * 2 + row % 16 / 8], k % 2);
  }

  /// [PTX ISA, "Matrix-descriptor format", "Shared Memory Matrix Layout"]: address bits 4-6 are exclusive-ored with
  /// bits 7-9 (128-byte swizzle); eight rows of 128 bytes follow each other.
  float element(std::uint64_t descriptor, int bytes) const {
    require(descriptor >> 62 == 1, "no 128-byte swizzle");
    const int offset = swizzled(field(descriptor, 0) + bytes);
    require_published(offset);
    const std::byte* at = place(offset, 2);
    std::uint16_t bits;
    std::memcpy(&bits, at, 2);
    return half(bits, 0);
  }
  static int swizzled(int offset) { return offset ^ (offset >> 7 & 7) << 4; }
  static int field(std::uint64_t descriptor, int first) { return static_cast<int>(descriptor >> first & 0x3fff) * 16; }
  float by_columns(std::uint64_t descriptor, int row, int k) const {
    return element(descriptor, row / 8 * field(descriptor, 32) + row % 8 * 128 + k * 2);
  }
  float by_summed_rows(std::uint64_t descriptor, int k, int col) const {
    return element(descriptor,
                   col / 64 * field(descriptor, 16) + k / 8 * field(descriptor, 32) + k % 8 * 128 + col % 64 * 2);
  }
};

}  // namespace lyceum::test
