#pragma once

#include <cstddef>
#include <memory>

#include "parallel/comm/pending_state.h"

namespace lyceum {

/// An all_reduce by direct messages. Values are cut into pieces, a piece into one slice a rank; every rank receives its
/// slice from all others, reduces it in rank order, and sends the result to all. While one piece is reduced, the one
/// before it is handed out. What is too small for slices is sent whole to everybody and reduced by each.
///
/// So the result is x_0 + x_1 + … in rank order, whatever the size, the same bits on every rank and in every run; it
/// needs memory for one piece only. MPI_Iallreduce of Open MPI 4.1, in place, copies whole vectors up and down a tree:
/// up to six times slower (64 MB, 8 ranks on 2 cores). A rank sends 2 · (ranks − 1) messages a piece: meant for groups
/// of at most some hundreds.
class AllReduce final : public Messages {
 public:
  struct Values {
    void* data;
    std::int64_t size;  // elements
    DType type;         // f32, bf16, f64, i32, i64
  };
  /// Starts it. `tag` must be the same on all ranks and differ from that of every operation that is under way.
  AllReduce(std::shared_ptr<Communicator> communicator, const Operation& operation, const Values& values,
            Reduction reduction, int tag);

 private:
  /// Elements [first, first + count).
  struct Range {
    std::int64_t first, count;
  };
  bool next() override;
  void exchange_slices();
  void reduce_slices();
  void hand_out(Range piece);
  Range piece(std::int64_t number) const;
  /// What `rank` reduces of a piece.
  Range slice_of(Range piece, int rank) const;
  std::byte* at(std::int64_t element) const { return values_ + element * width_; }

  std::byte* values_;
  std::int64_t size_, width_;  // elements, bytes of an element
  DType type_;
  Reduction reduction_;
  int tag_;
  bool sliced_;
  std::int64_t piece_size_;                // elements
  std::int64_t reduced_ = 0;               // pieces so far
  std::unique_ptr<std::byte[]> received_;  // this rank's slice from every rank, in rank order
};

}  // namespace lyceum
