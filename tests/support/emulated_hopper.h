#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "support/emulated_machine.h"

namespace lyceum::test {

/// A tensor map of EmulatedHopper: a matrix of `lines` lines of `width` 16-bit elements, `stride` bytes apart. A box
/// has `box_lines` lines of 64 elements.
struct EmulatedMap {
  std::byte* data;
  std::int64_t stride;
  int width, lines, box_lines;
};

/// One thread of an EmulatedBlock with the warpgroup products, barriers and loads of a Hopper GPU. It has the members
/// of lib/kernels/cuda/machine_hopper.cuh. It makes wrong synchronisation visible:
/// - A product is computed only when a thread waits for it, from the contents of registers and shared memory at that
///   time. Copies from shared to global memory are delayed in the same way in ascending order, and are done at once in
///   descending order (EmulatedBlock::Order). Code that changes operands or reads results too early gets wrong numbers.
/// - Loading a box while a product reads it is an error.
/// - Using the memory of another block before its barriers exist or after it has ended is an error.
/// - Clusters run one after another, so waiting for a block of a later cluster is an error.
class EmulatedHopper : public EmulatedMachine {
 public:
  using EmulatedMachine::EmulatedMachine;

  std::int32_t block_index() const { return block().index_; }
  std::int32_t blocks() const { return block().blocks_; }
  int uniform(int value) const { return value; }
  int hide_origin(int value) const { return value; }
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
    begin(d, nullptr, [this, a, b, add, now = block().loads_](const std::vector<float*>& to, const auto&) {
      const auto row_of_a = [&](int row, int k) {
        return a_across ? by_summed_rows(a, k, row, now) : by_columns(a, row, k, now);
      };
      const auto col_of_b = [&](int col, int k) {
        return b_across ? by_summed_rows(b, k, col, now) : by_columns(b, col, k, now);
      };
      multiply<columns / 8>(to, add, row_of_a, col_of_b);
    });
  }
  template <int count>
  void multiply_words(float (&d)[count][4], const std::uint32_t (&a)[4], std::uint64_t b) const {
    begin(d, a, [this, b, now = block().loads_](const auto& to, const std::vector<const std::uint32_t*>& words) {
      const auto row_of_a = [&](int row, int k) { return word_of(words, row, k); };
      const auto col_of_b = [&](int col, int k) { return by_summed_rows(b, k, col, now); };
      multiply<count>(to, true, row_of_a, col_of_b);
    });
  }

  void initialise_barrier(int offset, int arrivals) const {
    require(offset % 8 == 0, "a barrier at the misaligned offset {}", offset);
    block().barriers_[offset] = {arrivals, arrivals, 0, 0, {}};
  }
  void publish_barriers() const {}
  void arrive(int offset) const {
    arrive_expecting(offset, 0);
    pause();
  }
  void arrive_at(int offset, int rank) const {
    in_block(rank).arrive_expecting(offset, 0);
    pause();
  }
  void sync_cluster() const {
    sync_warp();
    self().at_cluster_barrier = true;
    block().leave(false);
  }
  void arrive_expecting(int offset, int bytes) const {
    EmulatedBlock::Barrier& barrier = barrier_at(offset);
    require(barrier.missing > 0, "one arrival too many");
    barrier.bytes += bytes;
    --barrier.missing;
    barrier.settle();
  }
  void arrive_after_copies(int offset) const {
    later(offset, [machine = *this, copies = taken_copies(), offset] {  // the thread may end before its copies do
      machine.finish(copies);
      machine.arrive_expecting(offset, 0);
    });
  }
  void wait_barrier(int offset, std::uint32_t parity) const {
    EmulatedBlock::Barrier& barrier = barrier_at(offset);
    wait_for(barrier, parity);
  }

  void acquire_map(const EmulatedMap* map) const { self().acquired.insert(map); }
  void load_box(int to, const EmulatedMap* map, int offset, int x, int y) const {
    load_box_for_all<1>(to, map, offset, x, y);
  }
  template <int cluster>
  void load_box_for_all(int to, const EmulatedMap* map, int offset, int x, int y) const {
    require_acquired(map);
    if (cluster == 1) return load(to, *map, offset, x, y);
    for (int rank = 0; rank < cluster; ++rank) in_block(rank).load(to, *map, offset, x, y);
  }
  void begin_store_box(const EmulatedMap* map, int from, int x, int y) const {
    require(from % 1024 == 0 && x >= 0 && y >= 0, "a box cannot be stored from offset {} to {}, {}", from, x, y);
    require_acquired(map);
    require(map->stride % 16 == 0, "rows of {} bytes", map->stride);
    require_aligned(map->data, 16);
    begin_bulk(from, map->box_lines * 128, [machine = *this, map = *map, from, x, y] {
      each_element(map, x, y, [&](int line, int element, std::byte* to) {
        if (to) std::memcpy(to, machine.address_of(from + swizzled(line * 128 + element * 2), 2), 2);
      });
    });
  }
  /// Stores four 8 × 8 matrices to shared memory, the inverse of ldmatrix [PTX ISA, stmatrix]. Each lane passes the
  /// offset `to` of one row.
  void store_matrices(int to, const std::uint32_t (&words)[4]) const {
    struct Mine {
      EmulatedHopper machine;
      int to;
      const std::uint32_t (&words)[4];
    } mine{*this, to, words};
    block().meet_warp(&mine, [](const auto& all) {
      for (std::size_t lane = 0; lane < 32; ++lane) {
        const auto& from = *static_cast<const Mine*>(all[lane]);
        for (std::size_t i = 0; i < 4; ++i) {
          const auto& row = *static_cast<const Mine*>(all[8 * i + lane / 4]);
          std::memcpy(row.machine.address_of(row.to, 16) + lane % 4 * 4, &from.words[i], 4);
        }
        from.machine.note_unpublished(from.to);
      }
    });
  }

  void begin_bulk_write(float* to, int from, int bytes) const { begin_bulk_sums(to, from, bytes, false); }
  void begin_bulk_add(float* to, int from, int bytes) const { begin_bulk_sums(to, from, bytes, true); }
  template <std::size_t pending = 0>
  void wait_bulk_reads() const {
    auto& copies = self().bulk;
    for (; copies.size() > pending; copies.erase(copies.begin())) copies.front()();
  }
  void wait_bulk() const {
    wait_bulk_reads();
    self().bulk_pending = false;
  }
  std::uint32_t count_up(std::uint32_t* counter) const { return (*counter)++; }
  void wait_turn(const std::uint32_t* turns, int turn) const {
    require(*turns == static_cast<std::uint32_t>(turn), "waits at turn {} for turn {} of a block that runs later",
            *turns, turn);
  }
  void pass_turn(std::uint32_t* turns, int turn) const {
    require(!self().bulk_pending, "a turn ends before its copies have arrived");
    *turns = static_cast<std::uint32_t>(turn) + 1;
  }

  template <int count>
  void decrease_registers() const {}
  template <int count>
  void increase_registers() const {}
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
  void require_acquired(const EmulatedMap* map) const {
    require(self().acquired.contains(map), "uses a map that it has not acquired");
  }
  /// Loads a box of a matrix into shared memory at `to` [PTX ISA, tensors], and signals the barrier at `offset`.
  /// Elements outside the matrix are zero. The layout is swizzled as wgmma reads it.
  void load(int to, const EmulatedMap& map, int offset, int x, int y) const {
    require(to % 1024 == 0 && x >= 0 && y >= 0, "a box cannot be loaded to offset {} from {}, {}", to, x, y);
    const auto each_load = [machine = *this, to, lines = map.box_lines](const auto& f) {
      for (int at = to; at < to + lines * 128; at += 1024) f(machine.loads_at(at));
    };
    each_load([now = ++block().loads_](auto& loads) { loads = {now, loads.pending + 1}; });
    later(offset, [machine = *this, to, map, offset, x, y, each_load] {
      each_element(map, x, y, [&](int line, int element, const std::byte* from) {
        std::byte* at = machine.address_of(to + swizzled(line * 128 + element * 2), 2);
        from ? std::memcpy(at, from, 2) : std::memset(at, 0, 2);
      });
      each_load([](auto& loads) { --loads.pending; });
      EmulatedBlock::Barrier& barrier = machine.barrier_at(offset);
      barrier.bytes -= map.box_lines * 128;
      barrier.settle();
    });
  }
  /// Returns this thread as a thread of block `rank` of the cluster, to access that block's shared
  /// memory.
  EmulatedHopper in_block(int rank) const {
    EmulatedBlock& there = *block().cluster_.at(static_cast<std::size_t>(rank));
    require(!there.ended(), "uses the memory of a block that has ended");
    return {there, thread()};
  }
  /// Lets all other threads proceed as far as they can.
  void pause() const {
    self().paused = true;
    block().leave(false);
  }
  EmulatedBlock::Loads& loads_at(int offset) const {
    return block().loads_of_[static_cast<std::size_t>(offset) / 1024];
  }
  /// Calls f(line, element, address) for each element of the box that begins at column `x` of line `y`. The address is
  /// null outside the matrix.
  template <class F>
  static void each_element(const EmulatedMap& map, int x, int y, const F& f) {
    for (int line = 0; line < map.box_lines; ++line) {
      for (int element = 0; element < 64; ++element) {
        const bool inside = x + element < map.width && y + line < map.lines;
        f(line, element, inside ? map.data + (y + line) * map.stride + 2 * (x + element) : nullptr);
      }
    }
  }
  EmulatedBlock::Barrier& barrier_at(int offset) const {
    const auto found = block().barriers_.find(offset);
    require(found != block().barriers_.end(), "there is no barrier at offset {}", offset);
    return found->second;
  }
  /// Does work that the hardware does asynchronously: with Order::descending at once, otherwise when a thread waits for
  /// the barrier at `offset`.
  template <class Work>
  void later(int offset, Work&& work) const {
    if (block().order_ == EmulatedBlock::Order::descending) return work();
    barrier_at(offset).pending.push_back(work);
  }
  void begin_bulk_sums(float* to, int from, int bytes, bool add) const {
    require(bytes % 16 == 0, "a bulk copy of {} bytes is not a multiple of 16", bytes);
    require_aligned(to, 16);
    begin_bulk(from, bytes, [machine = *this, to, from, bytes, add] {
      for (int i = 0; i < bytes / 4; ++i) to[i] = *machine.shared<float>(from + 4 * i) + (add ? to[i] : 0.0f);
    });
  }
  template <class CopyThem>
  void begin_bulk(int from, int bytes, const CopyThem& copy) const {
    for (int byte = 0; byte < bytes; byte += 16) require_published_by_writer(from + byte);
    self().bulk_pending = true;
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

  /// Computes d = a · b, or d += a · b if `add`. d [64, 8 · count] is in registers of the threads `to`; a(row, k) and
  /// b(col, k) return elements, for k < 16.
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

  /// Returns element (row, col) of D, [64, cols], in the registers of a warpgroup's threads; word_of does the same for
  /// A. Warp w holds rows 16 w to 16 w + 15 [PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16"].
  static float& number(const std::vector<float*>& threads, int row, int col) {
    const int thread = row / 16 * 32 + row % 8 * 4 + col % 8 / 2;
    return threads[static_cast<std::size_t>(thread)][col / 8 * 4 + row % 16 / 8 * 2 + col % 2];
  }
  static float word_of(const std::vector<const std::uint32_t*>& threads, int row, int k) {
    const int thread = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
    return half(threads[static_cast<std::size_t>(thread)][k / 8 * 2 + row % 16 / 8], k % 2);
  }

  /// Returns a bf16 element of the matrix in shared memory that `descriptor` describes [PTX ISA, "Matrix-descriptor
  /// format", "Shared Memory Matrix Layout"]. `bytes`: its distance from the first element before swizzling. Eight rows
  /// of 128 bytes follow each other, and bits 4-6 of an address are exclusive-ored with bits 7-9 (128-byte swizzle).
  /// Throws an Error if the element was not published to the product, or if a load into it was pending or began after
  /// the product. `now`: number of loads that had begun when the product began.
  float element(std::uint64_t descriptor, int bytes, std::uint64_t now) const {
    require(descriptor >> 62 == 1, "no 128-byte swizzle");
    const int offset = swizzled(field(descriptor, 0) + bytes);
    require_published(offset);
    const EmulatedBlock::Loads& loads = loads_at(offset);
    require(loads.pending == 0 && loads.last <= now, "reads a box whose load is pending, or was not waited for");
    const std::byte* at = address_of(offset, 2);
    std::uint16_t bits;
    std::memcpy(&bits, at, 2);
    return half(bits, 0);
  }
  static int swizzled(int offset) { return offset ^ (offset >> 7 & 7) << 4; }
  static int field(std::uint64_t descriptor, int first) { return static_cast<int>(descriptor >> first & 0x3fff) * 16; }
  float by_columns(std::uint64_t descriptor, int row, int k, std::uint64_t now) const {
    return element(descriptor, row / 8 * field(descriptor, 32) + row % 8 * 128 + k * 2, now);
  }
  float by_summed_rows(std::uint64_t descriptor, int k, int col, std::uint64_t now) const {
    return element(descriptor,
                   col / 64 * field(descriptor, 16) + k / 8 * field(descriptor, 32) + k % 8 * 128 + col % 64 * 2, now);
  }
};

}  // namespace lyceum::test
