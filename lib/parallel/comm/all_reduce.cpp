#include "parallel/comm/all_reduce.h"

#include <algorithm>
#include <vector>

#include "parallel/comm/reduce_in_order.h"

namespace lyceum {
namespace {

/// Small enough to stay in a core's cache between its steps, large enough that starting messages costs little.
constexpr std::int64_t piece_bytes = std::int64_t{1} << 20;
/// Up to here (bytes of all ranks together) one step with whole vectors replaces two with slices.
constexpr std::int64_t whole_bytes = std::int64_t{64} << 10;

}  // namespace

AllReduce::AllReduce(std::shared_ptr<Communicator> communicator, const Operation& operation, const Values& values,
                     Reduction reduction, int tag)
    : Messages(std::move(communicator), operation),
      values_(static_cast<std::byte*>(values.data)),
      size_(values.size),
      width_(static_cast<std::int64_t>(size_of(values.type))),
      type_(values.type),
      reduction_(reduction),
      tag_(tag) {
  const std::int64_t ranks = this->communicator().size();
  sliced_ = size_ * width_ * ranks > whole_bytes;
  piece_size_ = sliced_ ? std::min(size_, piece_bytes / width_) : size_;
  const std::int64_t slice = sliced_ ? piece_size_ / ranks + 1 : size_;
  received_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(slice * ranks * width_));
  exchange_slices();
}

AllReduce::Range AllReduce::piece(std::int64_t number) const {
  const std::int64_t first = number * piece_size_;
  return {first, std::max<std::int64_t>(0, std::min(piece_size_, size_ - first))};
}

AllReduce::Range AllReduce::slice_of(Range piece, int rank) const {
  if (!sliced_) return piece;
  const std::int64_t ranks = communicator().size();
  const std::int64_t begin = piece.count * rank / ranks, end = piece.count * (rank + 1) / ranks;
  return {piece.first + begin, end - begin};
}

bool AllReduce::next() {
  const bool summed = piece(reduced_).count == 0;
  if (summed) return false;  // what arrived was the last piece being handed out
  reduce_slices();
  const Range done = piece(reduced_++);
  if (sliced_) hand_out(done);
  exchange_slices();
  return pending();
}

void AllReduce::exchange_slices() {
  const Range whole = piece(reduced_);
  const int ranks = communicator().size(), self = communicator().rank();
  const Range own = slice_of(whole, self);
  for (int step = 1; step < ranks; ++step) {
    const int from = (self + ranks - step) % ranks;
    if (own.count > 0) receive(received_.get() + from * own.count * width_, own.count * width_, from, tag_);
  }
  for (int step = 1; step < ranks; ++step) {
    const int to = (self + step) % ranks;
    const Range slice = slice_of(whole, to);
    if (slice.count > 0) send(at(slice.first), slice.count * width_, to, tag_);
  }
}

void AllReduce::reduce_slices() {
  const Range own = slice_of(piece(reduced_), communicator().rank());
  std::vector<const std::byte*> sources;
  for (int rank = 0; rank < communicator().size(); ++rank) {
    const bool mine = rank == communicator().rank();
    sources.push_back(mine ? at(own.first) : received_.get() + rank * own.count * width_);
  }
  reduce_in_order(sources, at(own.first), own.count, type_, reduction_);
}

void AllReduce::hand_out(Range piece) {
  const int ranks = communicator().size(), self = communicator().rank();
  for (int step = 1; step < ranks; ++step) {
    const int from = (self + ranks - step) % ranks;
    const Range slice = slice_of(piece, from);
    if (slice.count > 0) receive(at(slice.first), slice.count * width_, from, tag_);
  }
  const Range own = slice_of(piece, self);
  for (int step = 1; step < ranks && own.count > 0; ++step) {
    send(at(own.first), own.count * width_, (self + step) % ranks, tag_);
  }
}

}  // namespace lyceum
