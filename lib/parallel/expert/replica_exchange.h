#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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
/// How many rounds there are depends on the limits only, so all ranks call the same operations whatever is sent.
class ReplicaExchange {
 public:
  enum class Direction { to_replicas, to_originals };
  static constexpr std::int64_t row = 32;  // elements; all slots begin at multiples of it
  /// Bytes that a rank sends or receives per round, if a round of one row of each expert is not larger.
  static constexpr std::int64_t round_bytes = std::int64_t{64} << 20;

  struct Limits {
    std::int64_t elements;  // maximum of ReplicaLink::elements
    std::int64_t held;      // maximum number of replicas of a rank
    std::int64_t lent;      // maximum number of replicas of the experts of a rank
  };
  /// `group` must outlive this.
  ReplicaExchange(const ProcessGroup& group, const Limits& limits, std::int64_t bytes_per_round = round_bytes);

  /// Collective. Starts to send along `links`, which are the same on all ranks, in the same order. `from`: flat memory
  /// of this rank's originals or replicas. It must not change until finish() returns.
  void start(const Stream& stream, std::vector<ReplicaLink> links, Direction direction, const Tensor& from);
  /// Collective. Waits for what start() sends. Weights are copied to the replicas in `to`. Gradients are added to those
  /// of the originals in `to`, in the order of the ranks of the replicas.
  void finish(const Stream& stream, const Tensor& to);
  bool in_flight() const { return work_.has_value(); }

  /// Returns the bytes that this rank has sent to other ranks so far.
  std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  struct Part {
    std::int64_t first, count;  // elements of this rank's flat memory
  };
  struct Work {
    std::vector<ReplicaLink> links;
    Direction direction;
    Tensor from;
    std::int64_t chunk;    // elements of each link per round
    std::int64_t started;  // rounds
    Tensor sent, received;
    Pending pending;
  };
  std::int64_t rounds(const Work& work) const;
  /// Returns what this rank sends (or receives) in a round, by the other rank, and counts the rows for each rank.
  std::vector<Part> parts_of(const Work& work, std::int64_t round, bool sends, std::vector<std::int64_t>& rows) const;
  void start_round(const Stream& stream);

  const ProcessGroup* group_;
  Limits limits_;
  std::int64_t round_bytes_, bytes_sent_ = 0;
  std::optional<Work> work_;
};

}  // namespace lyceum
