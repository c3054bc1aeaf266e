#include "kernels/choices.h"
#include "kernels/choices_checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/index_check.cuh"
#include "kernels/cuda/launch.cuh"

namespace lyceum {

namespace {

constexpr int choice_threads = 256;

/// One thread per token, in a grid-stride loop.
__global__ void __launch_bounds__(choice_threads) map_choices(MapChoices map, IndexCheck index) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * choice_threads, k = map.index.cols;
  for (std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * choice_threads + threadIdx.x; t < map.index.rows;
       t += stride) {
    bool sound = true;
    for (std::int64_t j = 0; j < k; ++j) sound = index.passes(map.index.row(t)[j]) && sound;
    for (std::int64_t j = 0; j < k; ++j) map.y.row(t)[j] = sound ? destination_of(map, t, j) : -1;
  }
}

/// One thread block per entry of map.count. Counts are integers, so their order does not matter.
__global__ void __launch_bounds__(choice_threads)
    count_destinations(MapChoices map, IndexCheck index, IndexCheck destination) {
  const std::int64_t pairs = map.index.size(), k = map.index.cols, wanted = blockIdx.x;
  std::int64_t count = 0;
  for (std::int64_t pair = threadIdx.x; pair < pairs; pair += choice_threads) {
    const std::int32_t choice = map.index.row(pair / k)[pair % k];
    if (!index.passes(choice) || choice < 0) continue;
    const std::int32_t leads = map.destination[choice];
    count += destination.passes(leads) && leads == wanted;
  }
  count = join_block<choice_threads>(count, Sum{});
  if (threadIdx.x == 0) map.count[wanted] = count;
}

/// One thread per token, in a grid-stride loop.
__global__ void __launch_bounds__(choice_threads) divide_choices(DivideChoices divide) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * choice_threads;
  for (std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * choice_threads + threadIdx.x; t < divide.index.rows;
       t += stride) {
    for (std::int64_t j = 0; j < divide.index.cols; ++j) divide.y.row(t)[j] = destination_of(divide, t, j);
  }
}

}  // namespace

void run(const CudaStream& stream, const DivideChoices& divide) {
  require_fitting(divide);
  start(stream, "DivideChoices", divide_choices, blocks_for(divide.index.rows, choice_threads), choice_threads, divide);
}

void run(const CudaStream& stream, const MapChoices& map) {
  require_fitting(map);
  const IndexCheck index(stream, "MapChoices", "index", -1, std::ssize(map.destination));
  start(stream, "MapChoices", map_choices, blocks_for(map.index.rows, choice_threads), choice_threads, map, index);
  start(stream, "MapChoices", count_destinations, static_cast<unsigned>(map.count.size()), choice_threads, map, index,
        IndexCheck(stream, "MapChoices", "destination", -1, std::ssize(map.count)));
}

}  // namespace lyceum
