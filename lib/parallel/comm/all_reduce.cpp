#include "parallel/comm/all_reduce.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "parallel/comm/level_reduce.h"
#include "parallel/comm/tree.h"
#include "parallel/comm/tree_reduce.h"

namespace lyceum {
namespace {

/// Size of a chunk: fits into a core's cache between its steps, and is large enough to amortise the cost of messages.
constexpr std::int64_t chunk_bytes = std::int64_t{1} << 20;
/// Up to this size (bytes of all ranks together), whole vectors are exchanged in one step instead of slices in two.
constexpr std::int64_t whole_bytes = std::int64_t{64} << 10;
/// Maximum size (bytes of one rank) of values that are sent along a tree.
constexpr std::int64_t tree_bytes = std::int64_t{64} << 10;

enum class Algorithm { tree, whole, chunks };

Algorithm algorithm_for(int ranks, std::int64_t bytes) {
  if (large_group(ranks)) return bytes <= tree_bytes ? Algorithm::tree : Algorithm::chunks;
  return bytes * ranks <= whole_bytes ? Algorithm::whole : Algorithm::chunks;
}

/// Returns the first element of a slice of a chunk of `count` elements.
std::int64_t begin_of_slice(std::int64_t count, int slice, int ranks) { return count * slice / ranks; }

/// Algorithm 2 of start_all_reduce(), in groups of one level.
class WholeReduce final : public Messages {
 public:
  WholeReduce(std::shared_ptr<Communicator> communicator, const Operation& operation, const ReducedValues& values,
              Reduction reduction, int tag);

 private:
  bool next() override;

  ReducedValues values_;
  Reduction reduction_;
  std::unique_ptr<std::byte[]> received_;  // the values of every other rank, in rank order
};

WholeReduce::WholeReduce(std::shared_ptr<Communicator> of, const Operation& operation, const ReducedValues& values,
                         Reduction reduction, int tag)
    : Messages(std::move(of), operation), values_(values), reduction_(reduction) {
  const int ranks = communicator().size(), self = communicator().rank();
  const std::int64_t bytes = values.bytes();
  received_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes * ranks));
  for (int step = 1; step < ranks; ++step) {
    const int from = (self + ranks - step) % ranks;
    receive(received_.get() + from * bytes, bytes, from, tag);
  }
  for (int step = 1; step < ranks; ++step) send(values.data, bytes, (self + step) % ranks, tag);
}

bool WholeReduce::next() {
  auto* const own = static_cast<std::byte*>(values_.data);
  std::vector<const std::byte*> sources;
  for (int rank = 0; rank < communicator().size(); ++rank) {
    sources.push_back(rank == communicator().rank() ? own : received_.get() + rank * values_.bytes());
  }
  reduce_by_levels(sources, own, values_.size, values_.type, reduction_);
  return false;
}

/// Algorithm 3 of start_all_reduce(). With L levels, round r of chunk c does level r of its reduction, and sends the
/// sums of chunk c − 1 at level L − 1 − r.
class ChunkedReduce final : public Messages {
 public:
  ChunkedReduce(std::shared_ptr<Communicator> communicator, const Operation& operation, const ReducedValues& values,
                Reduction reduction, int tag);

 private:
  /// Elements [first, first + count).
  struct Range {
    std::int64_t first, count;
  };
  bool next() override;
  void begin_chunk();
  void start_round();
  void send_sums(Range chunk, const ReductionLevel& level);
  /// Returns an empty range behind the last chunk, and before the first.
  Range chunk(std::int64_t number) const;
  std::byte* at(std::int64_t element) const { return values_ + element * width_; }

  std::byte* values_;
  std::int64_t size_, width_;  // number of elements, and bytes per element
  int tag_;
  LevelReduce reduce_;
  int own_slice_;
  std::int64_t chunk_size_;   // elements of a chunk
  std::int64_t current_ = 0;  // number of the chunk that is being reduced
  std::size_t round_ = 0;     // of this chunk
};

ChunkedReduce::ChunkedReduce(std::shared_ptr<Communicator> of, const Operation& operation, const ReducedValues& values,
                             Reduction reduction, int tag)
    : Messages(std::move(of), operation),
      values_(static_cast<std::byte*>(values.data)),
      size_(values.size),
      width_(static_cast<std::int64_t>(size_of(values.type))),
      tag_(tag),
      reduce_(communicator().rank(), communicator().size(), values.type, reduction),
      own_slice_(reduce_.levels().back().first_of(reduce_.levels().back().digit)),
      chunk_size_(std::min(size_, chunk_bytes / width_)) {
  begin_chunk();
  start_round();
}

ChunkedReduce::Range ChunkedReduce::chunk(std::int64_t number) const {
  if (number < 0) return {0, 0};
  const std::int64_t first = number * chunk_size_;
  return {first, std::max<std::int64_t>(0, std::min(chunk_size_, size_ - first))};
}

void ChunkedReduce::begin_chunk() {
  const auto [begin, count] = chunk(current_);
  const int ranks = communicator().size();
  SlicedValues values{.first = {}, .slices = {}, .sum = at(begin + begin_of_slice(count, own_slice_, ranks))};
  for (int slice = 0; slice <= ranks; ++slice) {
    values.first.push_back(begin_of_slice(count, slice, ranks));
    if (slice < ranks) values.slices.push_back(at(begin + values.first.back()));
  }
  reduce_.begin(std::move(values));
}

void ChunkedReduce::start_round() {
  const std::size_t levels = reduce_.levels().size();
  send_sums(chunk(current_ - 1), reduce_.levels()[levels - 1 - round_]);
  if (chunk(current_).count > 0) reduce_.exchange(*this, tag_, round_);
}

bool ChunkedReduce::next() {
  if (chunk(current_).count > 0) reduce_.reduce(round_);
  if (++round_ == reduce_.levels().size()) {
    round_ = 0;
    ++current_;
    if (chunk(current_ - 1).count == 0) return false;  // the sums of the last chunk have arrived
    begin_chunk();
  }
  start_round();
  return true;
}

void ChunkedReduce::send_sums(Range chunk, const ReductionLevel& level) {
  const auto first = [&](int slice) { return begin_of_slice(chunk.count, slice, communicator().size()); };
  const auto range_of = [&](int digit) {
    const int begin = level.first_of(digit);
    return Range{chunk.first + first(begin), first(begin + level.span) - first(begin)};
  };
  const auto peer = [&](int digit) { return communicator().rank() + (digit - level.digit) * level.stride; };
  for (int step = 1; step < level.radix; ++step) {
    const int from = level.digit_at(-step);
    if (const auto [begin, count] = range_of(from); count > 0) receive(at(begin), count * width_, peer(from), tag_);
  }
  const auto [begin, count] = range_of(level.digit);
  for (int step = 1; step < level.radix && count > 0; ++step) {
    send(at(begin), count * width_, peer(level.digit_at(step)), tag_);
  }
}

}  // namespace

std::unique_ptr<Messages> start_all_reduce(std::shared_ptr<Communicator> communicator, const Operation& operation,
                                           const ReducedValues& values, Reduction reduction) {
  const Algorithm algorithm = algorithm_for(communicator->size(), values.bytes());
  const int tag = communicator->next_reduce_tag();
  if (algorithm == Algorithm::tree) {
    return std::make_unique<TreeReduce>(std::move(communicator), operation, values, reduction, tag);
  }
  if (algorithm == Algorithm::whole) {
    return std::make_unique<WholeReduce>(std::move(communicator), operation, values, reduction, tag);
  }
  return std::make_unique<ChunkedReduce>(std::move(communicator), operation, values, reduction, tag);
}

std::int64_t messages_of_all_reduce(int rank, int ranks, std::int64_t size, DType type) {
  const auto width = static_cast<std::int64_t>(size_of(type));
  if (ranks == 1 || size == 0) return 0;
  const Algorithm algorithm = algorithm_for(ranks, size * width);
  if (algorithm == Algorithm::tree) return messages_of_tree_reduce(rank, ranks);
  if (algorithm == Algorithm::whole) return ranks - 1;
  const std::vector<ReductionLevel> levels = reduction_levels(rank, ranks);
  const auto of_chunk = [&](std::int64_t count) {
    const auto first = [&](int slice) { return begin_of_slice(count, slice, ranks); };
    std::int64_t messages = 0;
    for (const ReductionLevel& level : levels) {
      const int own = level.first_of(level.digit);
      const bool any = first(own + level.span) > first(own);
      messages += messages_of_level(level, first) + (any ? level.radix - 1 : 0);
    }
    return messages;
  };
  const std::int64_t chunk = std::min(size, chunk_bytes / width);
  return size / chunk * of_chunk(chunk) + of_chunk(size % chunk);
}

}  // namespace lyceum
