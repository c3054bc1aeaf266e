#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "kernels/matrix_boxes.h"
#include "optim/matrix_slices.h"

namespace lyceum {

/// The parts of matrices that the ranks of a group hold, as one of these ranks sees them.
struct MuonLayout {
  MatrixSharing sharing;
  int rank = 0;                                       // of this rank in the group
  std::vector<std::vector<MatrixSlice>> slices;       // [sharers][matrices]
  std::vector<std::vector<std::int64_t>> unit_sizes;  // [sharers][units]: elements, including padding for equal parts
  std::vector<std::size_t> unit_of;                   // [matrices]: index of the unit

  /// Returns the elements that rank `rank` holds of a matrix and updates.
  std::vector<HeldRows> held_by(int rank, std::size_t matrix) const;
  /// Returns the range of a unit that rank `rank` updates.
  Range updated_by(int rank, std::size_t unit) const;
};

/// A rectangle of a matrix that is copied between the memory of a share's gradients and a buffer.
struct ShareBox {
  std::size_t unit;
  HeldRows held;
  std::int64_t first, stride;  // first element in the buffer, and elements from one row to the next
  double factor;               // 0.2 √max(rows, cols) of the matrix
};

/// A part of Muon's exchange, with bounded buffers. Every rank of a group owns some of the matrices of a round:
///   1. Ranks send their parts of U to the owners, or copy them if they are owners themselves.
///   2. Owners orthogonalise their matrices, in batches of equal shape.
///   3. Owners send the parts of X back.
/// The owner's matrices are in one buffer, batch after batch. With MatrixSharing::gathers(), no rank sends parts in 1,
/// since the owners have them, and in 3 the buffers of all owners are gathered on all ranks. Otherwise, without ZeRO,
/// the ranks of the owner's copy send in 1, and all copies receive in 3. Sizes are in elements.
struct MuonRound {
  struct Batch {
    std::int64_t rows, cols, count, first;  // first element in the buffer; [count, padded(rows), padded(cols)]
  };
  std::vector<Batch> batches;
  std::int64_t elements = 0;                  // of the buffer of matrices, whose padding is zero
  std::vector<std::int64_t> sent, received;   // [ranks]: step 1, without parts of this rank's own matrices
  std::vector<std::int64_t> returned, taken;  // [ranks]: step 3; if gathered, `taken` has the buffers of all ranks
  /// The copies of this rank between the shares' gradients, the buffer of matrices, and the buffers of messages.
  std::vector<ShareBox> own;             // 1 and 3: gradients ↔ matrices, if this rank is the owner
  std::vector<ShareBox> sent_boxes;      // 1: gradients → buffer to send
  std::vector<MovedBox> received_boxes;  // 1: received buffer → matrices
  std::vector<MovedBox> returned_boxes;  // 3: matrices → buffer to return
  std::vector<ShareBox> taken_boxes;     // 3: returned or gathered buffer → gradients
};

/// Returns the rounds of a rank. All ranks of the group have equally many. `owners`: as of choose_owners(). `type`: the
/// type in which matrices are sent and multiplied. Each owner takes as many matrices per round as `limit` bytes hold,
/// at least one.
std::vector<MuonRound> muon_rounds(const MuonLayout& layout, std::span<const int> owners, DType type,
                                   std::int64_t limit);

/// The bytes that each owner uses per round for its matrices, their products and its messages; more if one matrix needs
/// more. Without ZeRO the messages of one matrix grow with the number of copies.
inline constexpr std::int64_t muon_round_bytes = std::int64_t{256} << 20;

/// Returns the bytes of the products of a batch, see orthogonalize().
std::int64_t product_bytes(const MuonRound::Batch& batch, DType type);

/// The work of Muon on one rank, for one group of units. `layout` needs the slices of this rank's own sharer only.
/// Exact, except `table_bytes` if the slices of other sharers consist of more or fewer boxes.
struct MuonLoad {
  double flops = 0;
  double exchanged = 0;  // elements that this rank sends to other ranks, in both directions
  double gathered = 0;   // elements that this rank contributes to all-gathers
  double rounds = 0;
  double peak_bytes = 0;   // of matrices, products and messages, in the largest round
  double table_bytes = 0;  // of the tables of boxes
};
MuonLoad muon_load(const MuonLayout& layout, std::span<const int> owners, DType type, std::int64_t limit);

}  // namespace lyceum
