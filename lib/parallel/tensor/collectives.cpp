#include "parallel/tensor/collectives.h"

#include <numeric>

#include "kernels/tensor_kernels.h"

namespace lyceum {

namespace {

/// Returns the number of elements of each rank's rows.
std::vector<std::int64_t> extents(const RowShards& shards, const Tensor& x) {
  std::vector<std::int64_t> elements = shards.rows;
  for (std::int64_t& extent : elements) extent *= x.shape()[1];
  return elements;
}

Tensor empty_rows(const Stream& stream, const Tensor& x, std::int64_t rows) {
  return Tensor::empty(stream, x.dtype(), {rows, x.shape()[1]});
}

void require_rows(const RowShards& shards, const Tensor& x, std::int64_t rows) {
  require(x.shape().rank() == 2 && x.shape()[0] == rows, "a tensor {} does not fit: rank {} of group {} has {} rows",
          x.shape(), shards.group->rank(), shards.group->name(), rows);
}

Where here(const RowShards& shards, const Tensor& x, std::source_location location = std::source_location::current()) {
  return {location, shards.routed ? x.shape()[1] * static_cast<std::int64_t>(size_of(x.dtype())) : 0};
}

}  // namespace

RowShards RowShards::even(const ProcessGroup& group, std::int64_t rows) {
  RowShards shards{.group = &group, .rows = {}, .routed = false};
  for (int rank = 0; rank < group.size(); ++rank) shards.rows.push_back(part_of(rows, rank, group.size()).count);
  return shards;
}

std::int64_t RowShards::total() const { return std::accumulate(rows.begin(), rows.end(), std::int64_t{0}); }

Range RowShards::own() const {
  const auto self = rows.begin() + group->rank();
  return {std::accumulate(rows.begin(), self, std::int64_t{0}), *self};
}

Tensor identity(const Stream&, const RowShards&, const Tensor& x) { return x; }

Tensor all_reduce(const Stream& stream, const RowShards& shards, const Tensor& x) {
  require_rows(shards, x, shards.total());
  const Tensor y = empty_rows(stream, x, x.shape()[0]);
  convert(stream, x, y);
  shards.group->all_reduce_async(y).wait();
  return y;
}

Tensor all_gather(const Stream& stream, const RowShards& shards, const Tensor& x) {
  require_rows(shards, x, shards.own().count);
  const Tensor y = empty_rows(stream, x, shards.total());
  shards.group->all_gather(x, y, extents(shards, x), here(shards, x));
  return y;
}

Tensor reduce_scatter(const Stream& stream, const RowShards& shards, const Tensor& x) {
  require_rows(shards, x, shards.total());
  const Tensor y = empty_rows(stream, x, shards.own().count);
  shards.group->reduce_scatter(x, y, extents(shards, x), here(shards, x));
  return y;
}

Tensor slice(const Stream&, const RowShards& shards, const Tensor& x) {
  require_rows(shards, x, shards.total());
  return x.slice(shards.own().first, shards.own().count);
}

}  // namespace lyceum
