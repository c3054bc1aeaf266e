#include <algorithm>

#include "kernels/capacity_checks.h"
#include "kernels/cuda/launch.cuh"

namespace lyceum {

namespace {

constexpr int capacity_threads = 128;

/// The work of one thread: the tokens of one sequence (blockIdx.x) and one pair of choice rank j and expert (by
/// blockIdx.y and threadIdx.x), which it visits in order.
template <class Choices>
struct Walk {
  std::int64_t sequence, j, expert, begin, end;  // begin, end: rows of the sequence's tokens that are present here

  __device__ explicit Walk(const Choices& of) : sequence(blockIdx.x) {
    const std::int64_t at = static_cast<std::int64_t>(blockIdx.y) * capacity_threads + threadIdx.x;
    j = at / of.counts.cols;
    expert = at % of.counts.cols;
    begin = here(of, sequence * of.seq_len - of.first);
    end = here(of, (sequence + 1) * of.seq_len - of.first);
  }
  __device__ static std::int64_t here(const Choices& of, std::int64_t row) {
    if (row < 0) return 0;
    return row < of.index.rows ? row : of.index.rows;
  }
};

__global__ void __launch_bounds__(capacity_threads) count_choices(CountChoices count) {
  const Walk<CountChoices> walk(count);
  if (walk.j >= count.index.cols) return;
  std::int64_t own = 0;
  for (std::int64_t t = walk.begin; t < walk.end; ++t) own += count.index.row(t)[walk.j] == walk.expert;
  count.counts.row(walk.sequence * count.index.cols + walk.j)[walk.expert] = own;
}

__global__ void __launch_bounds__(capacity_threads) drop_choices(DropChoices drop, std::int64_t sequences) {
  const Walk<DropChoices> walk(drop);
  const std::int64_t k = drop.index.cols, capacity = capacity_of(drop);
  if (walk.j >= k) return;
  std::int64_t before = 0;  // choices of the expert that take precedence
  for (std::int64_t j = 0; j <= walk.j; ++j) {
    const std::int64_t ranks = j < walk.j ? drop.ranks : drop.rank;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      before += drop.counts.row((rank * sequences + walk.sequence) * k + j)[walk.expert];
    }
  }
  unsigned long long dropped = 0;
  for (std::int64_t t = walk.begin; t < walk.end; ++t) {
    const std::int32_t chosen = drop.index.row(t)[walk.j];
    if (chosen < 0 && walk.expert == 0) drop.kept.row(t)[walk.j] = -1;
    if (chosen != walk.expert) continue;
    const bool full = before++ >= capacity;
    drop.kept.row(t)[walk.j] = full ? -1 : chosen;
    dropped += full;
  }
  // Adding integers atomically gives the same sum in any order.
  if (dropped && drop.dropped.rows > 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(drop.dropped.row(walk.j) + walk.expert), dropped);
  }
}

dim3 grid_of(std::int64_t sequences, std::int64_t k, std::int64_t experts) {
  return {static_cast<unsigned>(sequences), blocks_for(k * experts, capacity_threads)};
}

}  // namespace

void run(const CudaStream& stream, const CountChoices& count) {
  const std::int64_t sequences = require_fitting(count);
  start(stream, "CountChoices", count_choices, grid_of(sequences, count.index.cols, count.counts.cols),
        capacity_threads, count);
}

void run(const CudaStream& stream, const DropChoices& drop) {
  const std::int64_t sequences = require_fitting(drop);
  start(stream, "DropChoices", drop_choices, grid_of(sequences, drop.index.cols, drop.counts.cols), capacity_threads,
        drop, sequences);
}

}  // namespace lyceum
