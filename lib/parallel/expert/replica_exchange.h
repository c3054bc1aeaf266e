#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/range.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// The memory of a replica and of its original, as elements of flat tensors: the unit of experts of the rank that owns
/// the expert, and the spare slots of the rank that has the replica.
struct ReplicaLink {
  int owner, holder;      // ranks of the expert group
  std::int64_t original;  // first element in the owner's unit; read on the owner only
  std::int64_t replica;   // first element in the holder's spare slots
  std::int64_t elements;  // a multiple of ReplicaExchange::row
};

/// Sends weights from originals to replicas, and gradients from replicas to originals, in rounds with bounded buffers.
/// All ranks derive the same rounds from the links. A round sends the rest of each link, in the order of the links, as
/// far as the buffers of its two ranks have room. There is one round even if nothing is sent: a rehearsal, which knows
/// no links, then calls the same operation as a step whose replicas fit in one round.
class ReplicaExchange {
 public:
  enum class Direction { to_replicas, to_originals };
  static constexpr std::int64_t row = 32;  // elements; all slots begin at multiples of it
  /// Maximum number of bytes that a rank sends, and that it receives, per round.
  static constexpr std::int64_t round_bytes = std::int64_t{64} << 20;

  struct Limits {
    std::int64_t elements;  // maximum of ReplicaLink::elements
    std::int64_t held;      // maximum number of replicas of a rank
    std::int64_t lent;      // maximum number of replicas of the experts of a rank
  };
  /// `group` must outlive this. `bytes_per_round`: rounded down to whole rows, but at least one row.
  ReplicaExchange(const ProcessGroup& group, const Limits& limits, std::int64_t bytes_per_round = round_bytes);

  /// Collective. Starts to send along `links`, which are the same on all ranks, in the same order. `from`: flat memory
  /// of this rank's originals or replicas. It must not change until finish() returns. Only the first round is in flight
  /// between start() and finish().
  void start(const Stream& stream, std::vector<ReplicaLink> links, Direction direction, const Tensor& from);
  /// Collective. Waits for what start() sends. Weights are copied to the replicas in `to`. Gradients are added to those
  /// of the originals in `to`, in an order that depends only on the links.
  void finish(const Stream& stream, const Tensor& to);
  bool in_flight() const { return work_.has_value(); }

  /// Returns the bytes that this rank has sent to other ranks so far.
  std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  /// A part of a link that is sent in one round.
  struct Part {
    std::size_t link;
    std::int64_t first, count;  // elements of the link
  };
  struct Work {
    std::vector<ReplicaLink> links;
    Direction direction;
    Tensor from;
    std::int64_t room;               // elements that a rank can send, or receive, per round
    std::vector<std::int64_t> done;  // elements of each link in the rounds so far
    std::vector<Part> round;         // the parts of the round in flight, of all ranks
    Tensor sent, received;
    Pending pending;
  };
  /// Returns the parts of the next round.
  std::vector<Part> next_round(Work& work) const;
  /// Returns the memory that this rank sends (or receives) in the round in flight, by the other rank, and counts the
  /// rows for each rank.
  std::vector<Range> own_parts(const Work& work, bool sends, std::vector<std::int64_t>& rows) const;
  void start_round(const Stream& stream);
  void take(const Stream& stream, const Tensor& to) const;

  const ProcessGroup* group_;
  Limits limits_;
  std::int64_t round_bytes_, bytes_sent_ = 0;
  std::optional<Work> work_;
};

}  // namespace lyceum
