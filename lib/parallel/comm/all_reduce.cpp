#include "parallel/comm/all_reduce.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "parallel/comm/reduce_in_order.h"
#include "parallel/comm/tree.h"

namespace lyceum {
namespace {

/// Size of a chunk: fits into a core's cache between its steps, and is large enough to amortise the cost of messages.
constexpr std::int64_t chunk_bytes = std::int64_t{1} << 20;
/// Up to this size (bytes of all ranks together), whole vectors are exchanged in one step instead of slices in two.
constexpr std::int64_t whole_bytes = std::int64_t{64} << 10;
/// Maximum size (bytes of all ranks together) of values that are sent along a tree.
constexpr std::int64_t tree_bytes = std::int64_t{1} << 20;

/// Algorithms 2 and 3 of start_all_reduce(). A vector that is not divided into slices is a single chunk.
class DirectReduce final : public Messages {
 public:
  DirectReduce(std::shared_ptr<Communicator> communicator, const Operation& operation, const ReducedValues& values,
               Reduction reduction, int tag);

 private:
  /// Elements [first, first + count).
  struct Range {
    std::int64_t first, count;
  };
  bool next() override;
  void exchange_slices();
  void reduce_slices();
  void send_results(Range chunk);
  Range chunk(std::int64_t number) const;
  /// Returns the elements of a chunk that `rank` reduces.
  Range slice_of(Range chunk, int rank) const;
  std::byte* at(std::int64_t element) const { return values_ + element * width_; }

  std::byte* values_;
  std::int64_t size_, width_;  // number of elements, and bytes per element
  DType type_;
  Reduction reduction_;
  int tag_;
  bool sliced_;
  std::int64_t chunk_size_;                // elements of a chunk
  std::int64_t reduced_ = 0;               // number of chunks reduced so far
  std::unique_ptr<std::byte[]> received_;  // this rank's slice of the current chunk from every rank, in rank order
};

DirectReduce::DirectReduce(std::shared_ptr<Communicator> communicator, const Operation& operation,
                           const ReducedValues& values, Reduction reduction, int tag)
    : Messages(std::move(communicator), operation),
      values_(static_cast<std::byte*>(values.data)),
      size_(values.size),
      width_(static_cast<std::int64_t>(size_of(values.type))),
      type_(values.type),
      reduction_(reduction),
      tag_(tag) {
  const std::int64_t ranks = this->communicator().size();
  sliced_ = size_ * width_ * ranks > whole_bytes;
  chunk_size_ = sliced_ ? std::min(size_, chunk_bytes / width_) : size_;
  const std::int64_t slice = sliced_ ? chunk_size_ / ranks + 1 : size_;
  received_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(slice * ranks * width_));
  exchange_slices();
}

DirectReduce::Range DirectReduce::chunk(std::int64_t number) const {
  const std::int64_t first = number * chunk_size_;
  return {first, std::max<std::int64_t>(0, std::min(chunk_size_, size_ - first))};
}

DirectReduce::Range DirectReduce::slice_of(Range chunk, int rank) const {
  if (!sliced_) return chunk;
  const std::int64_t ranks = communicator().size();
  const std::int64_t begin = chunk.count * rank / ranks, end = chunk.count * (rank + 1) / ranks;
  return {chunk.first + begin, end - begin};
}

bool DirectReduce::next() {
  const bool summed = chunk(reduced_).count == 0;
  if (summed) return false;  // the messages that have arrived were the results of the last chunk
  reduce_slices();
  const Range done = chunk(reduced_++);
  if (sliced_) send_results(done);
  exchange_slices();
  return pending();
}

void DirectReduce::exchange_slices() {
  const Range whole = chunk(reduced_);
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

void DirectReduce::reduce_slices() {
  const Range own = slice_of(chunk(reduced_), communicator().rank());
  std::vector<const std::byte*> sources;
  for (int rank = 0; rank < communicator().size(); ++rank) {
    const bool mine = rank == communicator().rank();
    sources.push_back(mine ? at(own.first) : received_.get() + rank * own.count * width_);
  }
  reduce_in_order(sources, at(own.first), own.count, type_, reduction_);
}

void DirectReduce::send_results(Range chunk) {
  const int ranks = communicator().size(), self = communicator().rank();
  for (int step = 1; step < ranks; ++step) {
    const int from = (self + ranks - step) % ranks;
    const Range slice = slice_of(chunk, from);
    if (slice.count > 0) receive(at(slice.first), slice.count * width_, from, tag_);
  }
  const Range own = slice_of(chunk, self);
  for (int step = 1; step < ranks && own.count > 0; ++step) {
    send(at(own.first), own.count * width_, (self + step) % ranks, tag_);
  }
}

}  // namespace

std::unique_ptr<Messages> start_all_reduce(std::shared_ptr<Communicator> communicator, const Operation& operation,
                                           const ReducedValues& values, Reduction reduction) {
  const std::int64_t bytes = values.size * static_cast<std::int64_t>(size_of(values.type));
  if (large_group(*communicator) && communicator->size() * bytes <= tree_bytes) {
    const auto reduce = [=](std::span<const std::byte> collected) {
      std::vector<const std::byte*> sources;
      for (std::int64_t at = 0; at < std::ssize(collected); at += bytes) sources.push_back(collected.data() + at);
      reduce_in_order(sources, static_cast<std::byte*>(values.data), values.size, values.type, reduction);
    };
    const std::span result(static_cast<std::byte*>(values.data), static_cast<std::size_t>(bytes));
    return std::make_unique<TreeExchange>(std::move(communicator), operation, result, result, reduce);
  }
  const int tag = communicator->next_reduce_tag();
  return std::make_unique<DirectReduce>(std::move(communicator), operation, values, reduction, tag);
}

}  // namespace lyceum
