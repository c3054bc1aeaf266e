#include "core/allocator.h"
#include "kernels/checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/index_check.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scan.cuh"
#include "kernels/permute.h"

namespace lyceum {

namespace {

constexpr int sort_threads = 128;
constexpr int slot_threads = 1024;
constexpr std::int64_t chunk = 1024;  // pairs per block

/// Reads the experts of a block's pairs to shared memory; −1 after the last pair.
__device__ void read_chunk(const Matrix<const std::int32_t>& index, std::int32_t* experts) {
  const std::int64_t first = blockIdx.x * chunk, pairs = index.size(), k = index.cols;
  for (std::int64_t i = threadIdx.x; i < chunk; i += sort_threads) {
    const std::int64_t pair = first + i;
    experts[i] = pair < pairs ? index.row(pair / k)[pair % k] : -1;
  }
  __syncthreads();
}

/// Counts the pairs of each block: next[block, p] is the number of its pairs whose expert is at position p of the
/// order, and the last column the number of pairs without an expert in the order. Each thread counts its own experts,
/// so no two threads write to the same element.
__global__ void __launch_bounds__(sort_threads) count_chunk(SortByExpert sort, std::int64_t* next, IndexCheck index) {
  __shared__ std::int32_t experts[chunk];
  read_chunk(sort.index, experts);
  const std::int64_t rest = sort.index.size() - blockIdx.x * chunk;
  const auto positions = static_cast<std::int64_t>(sort.order.size());
  std::int64_t none = 0;
  for (std::int64_t i = threadIdx.x; i < chunk && i < rest; i += sort_threads) {
    index.passes(experts[i]);
    none += experts[i] == -1 || (experts[i] >= positions && experts[i] < sort.choices());
  }
  none = join_block<sort_threads>(none, Sum{});
  if (threadIdx.x == 0) next[blockIdx.x * (positions + 1) + positions] = none;
  for (std::int64_t p = threadIdx.x; p < positions; p += sort_threads) {
    const std::int32_t wanted = sort.order[p];
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < chunk && i < rest; ++i) count += experts[i] == wanted;
    next[blockIdx.x * (positions + 1) + p] = count;
  }
}

/// Replaces the counts by the slot of each block's first pair at each position, and computes sort.begin. One thread
/// block. A warp processes one position at a time; its lanes divide the chunks.
__global__ void __launch_bounds__(slot_threads)
    compute_slots(SortByExpert sort, std::int64_t* next, std::int64_t chunks, IndexCheck order, IndexCheck all_pairs) {
  constexpr int warps = slot_threads / warp_size;
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const auto positions = static_cast<std::int64_t>(sort.order.size());
  const auto count_of = [&](std::int64_t c, std::int64_t p) -> std::int64_t& { return next[c * (positions + 1) + p]; };

  std::int64_t none = 0;
  for (std::int64_t c = threadIdx.x; c < chunks; c += slot_threads) none += count_of(c, positions);
  none = join_block<slot_threads>(none, Sum{});
  for (std::int64_t p = warp; p < positions; p += warps) {
    std::int64_t count = 0;
    for (std::int64_t c = lane; c < chunks; c += warp_size) count += count_of(c, p);
    count = sum_to_here(count);
    if (lane == warp_size - 1) sort.begin[p] = count;
  }
  __syncthreads();

  std::int64_t slots_before = 0;
  for (std::int64_t base = 0; base < positions; base += slot_threads) {
    const std::int64_t p = base + threadIdx.x;
    std::int64_t total = 0;
    const std::int64_t before = exclusive_sum<slot_threads>(p < positions ? sort.begin[p] : 0, total);
    if (p < positions) {
      order.passes(sort.order[p]);
      sort.begin[p] = slots_before + before;
    }
    slots_before += total;
  }
  __syncthreads();

  for (std::int64_t p = warp; p < positions; p += warps) {
    std::int64_t slot = sort.begin[p];
    for (std::int64_t base = 0; base < chunks; base += warp_size) {
      const std::int64_t c = base + lane, here = c < chunks ? count_of(c, p) : 0, to_here = sum_to_here(here);
      if (c < chunks) count_of(c, p) = slot + to_here - here;
      slot += __shfl_sync(whole_warp, to_here, warp_size - 1);
    }
  }
  if (threadIdx.x != 0) return;
  sort.begin[positions] = slots_before;
  all_pairs.passes(slots_before +
                   none);  // differs from the number of pairs if the order has an expert twice or lacks one
}

__global__ void __launch_bounds__(sort_threads) write_slots(SortByExpert sort, const std::int64_t* next) {
  __shared__ std::int32_t experts[chunk];
  read_chunk(sort.index, experts);
  const auto positions = static_cast<std::int64_t>(sort.order.size());
  const std::int64_t pairs = sort.index.size(), first = blockIdx.x * chunk;
  for (std::int64_t p = threadIdx.x; p < positions; p += sort_threads) {
    const std::int32_t wanted = sort.order[p];
    std::int64_t slot = next[blockIdx.x * (positions + 1) + p];
    for (std::int64_t i = 0; i < chunk && first + i < pairs; ++i) {
      if (experts[i] != wanted || slot >= pairs) continue;
      sort.slot_pair[slot] = first + i;
      sort.pair_slot[first + i] = slot++;
    }
  }
}

}  // namespace

void run(const CudaStream& stream, const SortByExpert& sort) {
  const std::int64_t pairs = sort.index.size(), positions = std::ssize(sort.order);
  require_length("SortByExpert", "begin", sort.begin, positions + 1);
  require_length("SortByExpert", "slot_pair", sort.slot_pair, pairs);
  require_length("SortByExpert", "pair_slot", sort.pair_slot, pairs);
  const std::int64_t chunks = (pairs + chunk - 1) / chunk;
  require(chunks < 1 << 30, "SortByExpert: {} pairs are too many", pairs);
  const auto memory = stream.memory().allocate(
      static_cast<std::size_t>(chunks * (positions + 1)) * sizeof(std::int64_t), MemoryKind::buffers);
  auto* next = reinterpret_cast<std::int64_t*>(memory.get());
  if (pairs) {  // pairs without an expert have no slot: −1
    check(cudaMemsetAsync(sort.slot_pair.data(), 0xff, sort.slot_pair.size_bytes(), stream.handle()), "SortByExpert");
    check(cudaMemsetAsync(sort.pair_slot.data(), 0xff, sort.pair_slot.size_bytes(), stream.handle()), "SortByExpert");
  }
  const auto blocks = static_cast<unsigned>(chunks);
  start(stream, "SortByExpert", count_chunk, blocks, sort_threads, sort, next,
        IndexCheck(stream, "SortByExpert", "index", -1, sort.choices()));
  start(stream, "SortByExpert", compute_slots, 1, slot_threads, sort, next, chunks,
        IndexCheck(stream, "SortByExpert", "order", 0, positions),
        IndexCheck(stream, "SortByExpert", "the sum of rows by order", pairs, pairs + 1));
  start(stream, "SortByExpert", write_slots, blocks, sort_threads, sort, next);
}

}  // namespace lyceum
