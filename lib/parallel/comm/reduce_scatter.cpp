#include "parallel/comm/reduce_scatter.h"

#include <algorithm>
#include <numeric>

#include "parallel/comm/reduce_in_order.h"

namespace lyceum {
namespace {

/// Received in one round from all ranks together: small enough to stay in a core's cache.
constexpr std::int64_t round_bytes = std::int64_t{1} << 20;

}  // namespace

ReduceScatter::ReduceScatter(std::shared_ptr<Communicator> communicator, Values values, int tag, Where where)
    : State(std::move(communicator), operation(values.all, where)),
      values_(std::move(values)),
      width_(static_cast<std::int64_t>(size_of(values_.all.dtype()))),
      begins_(values_.extents.size()),
      tag_(tag) {
  const std::int64_t ranks = this->communicator().size();
  std::exclusive_scan(values_.extents.begin(), values_.extents.end(), begins_.begin(), std::int64_t{0});
  most_ = std::max<std::int64_t>(1, round_bytes / (width_ * ranks));
  received_ = std::make_unique_for_overwrite<std::byte[]>(
      static_cast<std::size_t>(std::min(most_, values_.own.size()) * ranks * width_));
  exchange();
}

Operation ReduceScatter::operation(const Tensor& all, Where where) {
  const auto bytes = static_cast<std::int64_t>(all.bytes());
  return {.name = "reduce_scatter", .bytes = bytes, .size = bytes, .where = where};
}

std::int64_t ReduceScatter::count(int rank) const {
  return std::clamp<std::int64_t>(values_.extents[static_cast<std::size_t>(rank)] - first_, 0, most_);
}

bool ReduceScatter::next() {
  const int ranks = communicator().size(), self = communicator().rank();
  const auto* own =
      static_cast<const std::byte*>(values_.all.raw()) + (begins_[static_cast<std::size_t>(self)] + first_) * width_;
  if (const std::int64_t elements = count(self)) {
    std::vector<const std::byte*> sources;
    for (int rank = 0; rank < ranks; ++rank) {
      sources.push_back(rank == self ? own : received_.get() + rank * elements * width_);
    }
    reduce_in_order(sources, static_cast<std::byte*>(values_.own.raw()) + first_ * width_, elements,
                    values_.all.dtype(), Reduction::sum);
  }
  first_ += most_;
  exchange();
  return pending();
}

void ReduceScatter::exchange() {
  const int ranks = communicator().size(), self = communicator().rank();
  if (const std::int64_t elements = count(self)) {
    const auto bytes = static_cast<int>(elements * width_);
    for (int step = 1; step < ranks; ++step) {
      const int from = (self + ranks - step) % ranks;
      check(MPI_Irecv(received_.get() + std::int64_t{from} * bytes, bytes, MPI_BYTE, from, tag_,
                      communicator().handle(), request()));
      expect(bytes);
    }
  }
  for (int step = 1; step < ranks; ++step) {
    const int to = (self + step) % ranks;
    const std::int64_t elements = count(to);
    if (elements == 0) continue;
    const auto* part =
        static_cast<const std::byte*>(values_.all.raw()) + (begins_[static_cast<std::size_t>(to)] + first_) * width_;
    check(MPI_Isend(part, static_cast<int>(elements * width_), MPI_BYTE, to, tag_, communicator().handle(), request()));
  }
}

}  // namespace lyceum
