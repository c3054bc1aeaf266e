#include "parallel/data/gradient_norm.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "core/copy.h"
#include "kernels/adamw.h"

namespace lyceum {
namespace {

std::size_t blocks_of(std::int64_t elements) {
  return static_cast<std::size_t>((elements + range_block - 1) / range_block);
}

/// Units of one kind that count.
std::vector<const UnitShare*> counted(std::span<const UnitShare> shares, ParameterUnit::Group group) {
  std::vector<const UnitShare*> units;
  for (const UnitShare& share : shares) {
    if (share.unit->group() == group && !share.unit->twin()) units.push_back(&share);
  }
  return units;
}

/// Sums of squares of all blocks of the units, one unit after another, on every copy.
std::vector<double> block_sums(const Stream& stream, const std::vector<const UnitShare*>& units) {
  std::size_t blocks = 0;
  for (const UnitShare* share : units) blocks += blocks_of(share->unit->size());
  const Tensor sums = Tensor::zeros(stream, DType::f64, {static_cast<std::int64_t>(blocks)}, MemoryKind::buffers);
  std::size_t unit_begin = 0;
  for (const UnitShare* share : units) {
    const std::size_t first = unit_begin + static_cast<std::size_t>(share->updated.first / range_block);
    dispatch_accumulator(share->gradients.dtype(), [&]<class A>() {
      launch(stream, SumOfSquares<A>{.x = share->gradients.span<A>(),
                                     .block = range_block,
                                     .sums = sums.span<double>().subspan(first, blocks_of(share->updated.count))});
    });
    unit_begin += blocks_of(share->unit->size());
  }
  auto host = values_of<double>(stream, sums);
  // One rank's block and zeros of the others: the sum is exact.
  if (!units.empty() && units.back()->sharded) units.back()->copies->all_reduce(std::span(host));
  return host;
}

/// Sums of squares of one kind on this rank, by layer.
std::vector<double> layer_sums(const Stream& stream, std::span<const UnitShare> shares, ParameterUnit::Group group,
                               int layers) {
  const std::vector<const UnitShare*> units = counted(shares, group);
  const std::vector<double> blocks = block_sums(stream, units);
  std::vector<double> sums(static_cast<std::size_t>(layers), 0.0);
  auto next = blocks.begin();
  for (const UnitShare* share : units) {
    const ParameterUnit& unit = *share->unit;
    require(unit.layer() < layers, "{} is in layer {} of {}", unit.name(), unit.layer(), layers);
    const auto end = next + static_cast<std::ptrdiff_t>(blocks_of(unit.size()));
    sums[static_cast<std::size_t>(unit.layer())] += std::accumulate(next, end, 0.0);
    next = end;
  }
  return sums;
}

}  // namespace

double gradient_norm(const Stream& stream, const Mesh& mesh, std::span<const UnitShare> shares, int layers) {
  std::vector<double> dense = layer_sums(stream, shares, ParameterUnit::Group::dense, layers);
  std::vector<double> expert = layer_sums(stream, shares, ParameterUnit::Group::expert, layers);
  mesh.tensor.all_reduce(std::span(dense));
  mesh.expert_tensor.all_reduce(std::span(expert));
  mesh.expert.all_reduce(std::span(expert));
  std::vector<double> all = layer_sums(stream, shares, ParameterUnit::Group::replicated, layers);
  for (std::size_t layer = 0; layer < all.size(); ++layer) all[layer] += dense[layer] + expert[layer];
  mesh.pipeline.all_reduce(std::span(all));  // a layer has its sum on one stage and zeros on the others
  return std::sqrt(std::accumulate(all.begin(), all.end(), 0.0));
}

}  // namespace lyceum
