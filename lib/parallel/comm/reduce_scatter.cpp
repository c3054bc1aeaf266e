#include "parallel/comm/reduce_scatter.h"

#include <algorithm>

#include "parallel/comm/reduce_in_order.h"

namespace lyceum {
namespace {

/// Bytes that a rank receives in one round, from all ranks together: fits into a core's cache.
constexpr std::int64_t round_bytes = std::int64_t{1} << 20;

}  // namespace

ReduceScatter::ReduceScatter(std::shared_ptr<Communicator> communicator, const Operation& operation, Parts parts,
                             int tag)
    : Messages(std::move(communicator), operation),
      parts_(std::move(parts)),
      width_(static_cast<std::int64_t>(size_of(parts_.all.dtype()))),
      tag_(tag) {
  const std::int64_t ranks = this->communicator().size();
  most_ = std::max<std::int64_t>(1, round_bytes / (width_ * ranks));
  received_ = std::make_unique_for_overwrite<std::byte[]>(
      static_cast<std::size_t>(std::min(most_, parts_.own.size()) * ranks * width_));
  exchange();
}

std::int64_t ReduceScatter::count(int rank) const {
  return std::clamp<std::int64_t>(parts_.extents[static_cast<std::size_t>(rank)] - first_, 0, most_);
}

bool ReduceScatter::next() {
  const int ranks = communicator().size(), self = communicator().rank();
  const auto* own = parts_.begin(self) + first_ * width_;
  if (const std::int64_t elements = count(self)) {
    std::vector<const std::byte*> sources;
    for (int rank = 0; rank < ranks; ++rank) {
      sources.push_back(rank == self ? own : received_.get() + rank * elements * width_);
    }
    reduce_in_order(sources, static_cast<std::byte*>(parts_.own.raw()) + first_ * width_, elements, parts_.all.dtype(),
                    Reduction::sum);
  }
  first_ += most_;
  exchange();
  return pending();
}

void ReduceScatter::exchange() {
  const int ranks = communicator().size(), self = communicator().rank();
  if (const std::int64_t elements = count(self)) {
    const std::int64_t bytes = elements * width_;
    for (int step = 1; step < ranks; ++step) {
      const int from = (self + ranks - step) % ranks;
      receive(received_.get() + from * bytes, bytes, from, tag_);
    }
  }
  for (int step = 1; step < ranks; ++step) {
    const int to = (self + step) % ranks;
    if (const std::int64_t elements = count(to)) send(parts_.begin(to) + first_ * width_, elements * width_, to, tag_);
  }
}

}  // namespace lyceum
