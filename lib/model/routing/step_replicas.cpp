#include "model/routing/step_replicas.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/copy.h"
#include "model/routing/mixture.h"

namespace lyceum {

namespace {

void add(std::vector<std::int64_t>& sums, const std::vector<std::int64_t>& terms) {
  std::ranges::transform(sums, terms, sums.begin(), std::plus<>());
}

/// Returns no FLOPs for each mixture whose experts are divided among ranks.
std::vector<MovedFlops> nothing_moved(const Config& config) {
  std::vector<MovedFlops> none;
  for (const Mixture& mixture : mixtures_of(config)) {
    if (!mixture.placed()) continue;
    none.push_back({mixture.id, std::vector<std::int64_t>(static_cast<std::size_t>(config.parallel.expert))});
  }
  return none;
}

}  // namespace

ReplicaUse StepReplicas::use() const {
  ReplicaUse use;
  for (const auto& [place, choice] : choices_) {  // passes of a mixture follow each other
    const std::vector<std::int64_t>& replicas = choice->replicas.replicas;
    use.replicas += std::reduce(replicas.begin(), replicas.end());
    if (use.moved.empty() || use.moved.back().id != place.first) {
      use.moved.push_back({place.first, choice->moved});
    } else {
      add(use.moved.back().of_ranks, choice->moved);
    }
  }
  return use;
}

std::vector<ReplicaSums> StepReplicas::sums() const {
  std::vector<ReplicaSums> all;
  for (const auto& [place, choice] : choices_) {
    add(all, {{place.first, choice->replicas}});
  }
  return all;
}

ReplicaUse sum_replicas_over_ranks(const Stream& stream, const Config& config, const Mesh& mesh,
                                   const ReplicaUse& own) {
  ReplicaUse all{.replicas = own.replicas, .moved = nothing_moved(config)};
  for (const MovedFlops& layer : own.moved) {
    std::ranges::find(all.moved, layer.id, &MovedFlops::id)->of_ranks = layer.of_ranks;
  }
  std::vector<std::int64_t> numbers{all.replicas};
  for (const MovedFlops& layer : all.moved) {
    numbers.insert(numbers.end(), layer.of_ranks.begin(), layer.of_ranks.end());
  }
  const Tensor summed = tensor_of(stream, {std::ssize(numbers)}, numbers);
  for (const Axis axis : whole_model) mesh.group(axis).all_reduce_async(summed).wait();
  numbers = values_of<std::int64_t>(stream, summed);
  auto number = numbers.begin();
  all.replicas = *number++;
  for (MovedFlops& layer : all.moved) {
    std::copy_n(number, layer.of_ranks.size(), layer.of_ranks.begin());
    number += std::ssize(layer.of_ranks);
  }
  return all;
}

std::int64_t summed_replicas(const Config& config) {
  if (config.parallel.replicas == 0) return 0;
  return 1 + std::ssize(nothing_moved(config)) * config.parallel.expert;
}

}  // namespace lyceum
