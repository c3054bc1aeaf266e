#include "parallel/data/norm_sums.h"

#include "core/device_table.h"
#include "kernels/norms.h"
#include "parallel/data/copies.h"

namespace lyceum {
namespace {

/// The order in which the sums of the groups are stored, and added up within a layer.
constexpr std::array order{ParameterUnit::Group::dense, ParameterUnit::Group::expert,
                           ParameterUnit::Group::expert_replicated, ParameterUnit::Group::replicated};

/// An all-reduce of sums over layers: of `count` consecutive groups, beginning with number `first` in that order.
struct LayerExchange {
  Axis axis;
  std::int64_t first, count;
};
constexpr std::array layer_exchanges{
    LayerExchange{Axis::tensor, 0, 1},                // dense matrices are divided among tensor ranks
    LayerExchange{Axis::expert_tensor, 1, 1},         // each expert's matrices are divided, too
    LayerExchange{Axis::expert, 1, 2},                // both kinds of tensors of experts
    LayerExchange{Axis::pipeline, 0, order.size()}};  // a layer has its sum on one stage and zeros on the others

/// Returns the indices of the shares of one group that are not twins.
std::vector<std::size_t> counted(std::span<const UnitShare> shares, ParameterUnit::Group group) {
  std::vector<std::size_t> all;
  for (std::size_t s = 0; s < shares.size(); ++s) {
    if (shares[s].unit->group() == group && !shares[s].unit->twin()) all.push_back(s);
  }
  return all;
}

}  // namespace

NormSums::NormSums(Stream stream, const Mesh& mesh, std::span<const UnitShare> shares, int layers, int columns)
    : stream_(std::move(stream)), mesh_(mesh), layers_(layers), columns_(columns), shares_(shares.size()) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(columns) * shares_, -1), begin{0};
  std::vector<std::int64_t> in_column(shares_);
  std::vector<SumRange> ranges;
  for (std::size_t k = 0; k < kinds; ++k) {
    Kind& kind = kinds_[k];
    kind.first = size_;
    const std::vector<std::size_t> own = counted(shares, order[k]);
    std::vector<std::vector<SumRange>> of_layers(static_cast<std::size_t>(layers));
    for (const std::size_t s : own) {
      const UnitShare& share = shares[s];
      const int layer = share.unit->layer();
      require(layer < layers, "{} is in layer {}, but the model has {}", share.unit->name(), layer, layers);
      if (share.sharded) kind.copies = share.copies;
      of_layers[static_cast<std::size_t>(layer)].push_back({kind.blocks, flat_blocks_of(share.size)});
      in_column[s] = kind.blocks + share.updated.first / flat_block;
      kind.blocks += flat_blocks_of(share.size);
    }
    for (int column = 0; column < columns; ++column, size_ += kind.blocks) {
      for (const std::size_t s : own) offsets[static_cast<std::size_t>(column) * shares_ + s] = size_ + in_column[s];
      for (const std::vector<SumRange>& layer : of_layers) {
        for (const SumRange& range : layer) ranges.push_back({size_ + range.first, range.count});
        begin.push_back(std::ssize(ranges));
      }
    }
  }
  offsets_ = table_of(stream_, offsets);
  ranges_ = table_of(stream_, ranges);
  begin_ = table_of(stream_, begin);
}

Tensor NormSums::zeros() const { return Tensor::zeros(stream_, DType::f64, {size_}, MemoryKind::buffers); }

std::span<const std::int64_t> NormSums::offsets(int column) const {
  return rows_of<std::int64_t>(offsets_).subspan(static_cast<std::size_t>(column) * shares_, shares_);
}

void NormSums::norms(const Tensor& sums, std::span<double> norms, std::span<double> by_layer) const {
  for (const Kind& kind : kinds_) {
    // For each block, one rank has the sum and the others have zero, so the all-reduce is exact.
    if (kind.copies) kind.copies->all_reduce_async(sums.view(kind.first, {columns_ * kind.blocks})).wait();
  }
  const std::int64_t part = std::int64_t{columns_} * layers_;
  const Tensor layers =
      Tensor::empty(stream_, DType::f64, {static_cast<std::int64_t>(kinds) * part}, MemoryKind::buffers);
  launch(stream_, SumRanges{.x = sums.span<double>(),
                            .ranges = rows_of<SumRange>(ranges_),
                            .begin = rows_of<std::int64_t>(begin_),
                            .y = layers.span<double>()});
  for (const LayerExchange& exchange : layer_exchanges) {
    const Tensor kinds_of_it = layers.view(exchange.first * part, {exchange.count * part});
    mesh_.group(exchange.axis).all_reduce_async(kinds_of_it).wait();
  }
  launch(stream_, NormsOfLayers{.x = layers.span<double>(), .layers = layers_, .norms = norms, .by_layer = by_layer});
}

std::int64_t NormSums::table_bytes(const Counts& counts, int columns) {
  const std::int64_t outputs = static_cast<std::int64_t>(kinds) * columns * counts.layers;
  return columns *
             (counts.shares * std::int64_t{sizeof(std::int64_t)} + counts.counted * std::int64_t{sizeof(SumRange)}) +
         (outputs + 1) * std::int64_t{sizeof(std::int64_t)};
}

std::vector<NormSums::Exchange> NormSums::exchanges(const Counts& counts, int columns) {
  std::vector<Exchange> all;
  for (const ParameterUnit::Group kind : order) {
    const auto shared = counts.shared_blocks.find(kind);
    if (shared != counts.shared_blocks.end()) all.push_back({copies_axis(kind), columns * shared->second});
  }
  for (const LayerExchange& exchange : layer_exchanges) {
    all.push_back({exchange.axis, exchange.count * columns * counts.layers});
  }
  return all;
}

GradientNorm::GradientNorm(Stream stream, const Mesh& mesh, std::span<const UnitShare> shares, int layers)
    : stream_(stream), sums_(std::move(stream), mesh, shares, layers, 1) {
  if (!shares.empty()) type_ = shares.front().gradients.dtype();
  dispatch_accumulator(type_, [&]<class A>() {
    std::vector<TensorRow<A>> rows;
    for (const UnitShare& share : shares) {
      const std::int64_t count = share.updated.count;
      rows.push_back({count ? share.gradients.data<A>() : nullptr, count, blocks_});
      blocks_ += flat_blocks_of(count);
    }
    tensors_ = table_of(stream_, rows);
  });
}

void GradientNorm::launch(std::span<double> norm, std::span<double> by_layer) const {
  const Tensor sums = sums_.zeros();
  dispatch_accumulator(type_, [&]<class A>() {
    lyceum::launch(stream_, SquaresOfTensors<A>{.tensors = rows_of<TensorRow<A>>(tensors_),
                                                .blocks = blocks_,
                                                .offsets = sums_.offsets(0),
                                                .sums = sums.span<double>()});
  });
  sums_.norms(sums, norm, by_layer);
}

std::int64_t GradientNorm::table_bytes(const NormSums::Counts& counts) {
  return NormSums::table_bytes(counts, 1) + counts.shares * std::int64_t{sizeof(TensorRow<float>)};
}

}  // namespace lyceum
