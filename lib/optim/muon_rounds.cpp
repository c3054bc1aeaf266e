#include "optim/muon_rounds.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "optim/newton_schulz.h"
#include "parallel/data/flat_range.h"

namespace lyceum {

std::vector<HeldRows> MuonLayout::held_by(int rank, std::size_t matrix) const {
  const auto sharer = static_cast<std::size_t>(sharing.sharer_of(rank));
  return held_rows(slices[sharer][matrix], updated_by(rank, unit_of[matrix]));
}

Range MuonLayout::updated_by(int rank, std::size_t unit) const {
  const std::int64_t size = unit_sizes[static_cast<std::size_t>(sharing.sharer_of(rank))][unit];
  return sharing.sharded ? cut_evenly(size, sharing.copies, sharing.copy_of(rank)) : Range{0, size};
}

namespace {

std::int64_t bytes(DType type) { return static_cast<std::int64_t>(size_of(type)); }

/// Returns the elements of a matrix in a buffer of matrices.
std::int64_t buffered_elements(const MatrixSlice& matrix) { return padded(matrix.rows) * padded(matrix.cols); }

/// Returns an upper bound of the bytes that a matrix needs on its owner in a round.
std::int64_t bytes_on_owner(const MatrixSlice& matrix, const MatrixSharing& sharing, DType type) {
  std::int64_t messages = 1;  // received in step 1, or returned in step 3
  if (sharing.ranks() > 1 && !sharing.sharded) messages = sharing.gathers() ? sharing.ranks() : sharing.copies;
  if (sharing.ranks() == 1) messages = 0;
  return buffered_elements(matrix) * bytes(type) * (1 + messages) +
         product_bytes({.rows = matrix.rows, .cols = matrix.cols, .count = 1, .first = 0}, type);
}

/// The matrices of one round, by owner and then by shape: the order of buffers.
using Matrices = std::vector<std::size_t>;

/// Divides the matrices into rounds.
std::vector<Matrices> cut_rounds(std::span<const MatrixSlice> matrices, std::span<const int> owners,
                                 const MatrixSharing& sharing, DType type, std::int64_t limit) {
  struct Filling {
    std::size_t round = 0;
    std::int64_t bytes = 0;
  };
  std::vector<Filling> filling(static_cast<std::size_t>(sharing.ranks()));
  std::vector<Matrices> rounds;
  for (std::size_t m = 0; m < matrices.size(); ++m) {
    auto& [round, used] = filling[static_cast<std::size_t>(owners[m])];
    const std::int64_t more = bytes_on_owner(matrices[m], sharing, type);
    if (used > 0 && used + more > limit) {
      ++round;
      used = 0;
    }
    used += more;
    if (round == rounds.size()) rounds.emplace_back();
    rounds[round].push_back(m);
  }
  for (Matrices& round : rounds) {
    std::ranges::stable_sort(round, {},
                             [&](std::size_t m) { return std::tuple(owners[m], matrices[m].rows, matrices[m].cols); });
  }
  return rounds;
}

/// Adds a matrix to the batches and returns its first element in the buffer.
std::int64_t add_matrix(const MatrixSlice& matrix, std::vector<MuonRound::Batch>& batches, std::int64_t& elements) {
  if (batches.empty() || batches.back().rows != matrix.rows || batches.back().cols != matrix.cols) {
    batches.push_back({.rows = matrix.rows, .cols = matrix.cols, .count = 0, .first = elements});
  }
  ++batches.back().count;
  return std::exchange(elements, elements + buffered_elements(matrix));
}

double factor_of(const MatrixSlice& matrix) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(matrix.rows, matrix.cols)));
}

/// Builds the round of one rank.
class RoundBuilder {
 public:
  RoundBuilder(const MuonLayout& layout, std::span<const int> owners, const Matrices& matrices)
      : layout_(layout), owners_(owners), matrices_(matrices) {
    const auto ranks = static_cast<std::size_t>(layout.sharing.ranks());
    for (auto* counts : {&round_.sent, &round_.received, &round_.returned, &round_.taken}) counts->resize(ranks);
  }

  MuonRound build() {
    for (const std::size_t m : matrices_) {
      if (owners_[m] == layout_.rank) place_[m] = add_matrix(shape(m), round_.batches, round_.elements);
    }
    for (const auto& [m, first] : place_) add_to_shares(m, first, round_.own);
    std::int64_t sent = 0, received = 0, returned = 0, taken = 0;
    for (int rank = 0; rank < layout_.sharing.ranks(); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const bool other = rank != layout_.rank;
      const bool sends =
          layout_.sharing.sharded || layout_.sharing.copy_of(rank) == layout_.sharing.copy_of(layout_.rank);
      if (other && sends) {
        round_.sent[r] = pack_for(rank, sent, round_.sent_boxes);
        round_.received[r] = move_of(rank, received, false, round_.received_boxes);
      }
      if (layout_.sharing.gathers()) {
        round_.taken[r] = gather_of(rank, taken);
      } else if (other) {
        round_.returned[r] = move_of(rank, returned, true, round_.returned_boxes);
        round_.taken[r] = pack_for(rank, taken, round_.taken_boxes);
      }
    }
    return std::move(round_);
  }

 private:
  const MatrixSlice& shape(std::size_t m) const { return layout_.slices.front()[m]; }

  /// Appends this rank's parts of matrix `m` in the buffer in which the whole matrix begins at `first`.
  void add_to_shares(std::size_t m, std::int64_t first, std::vector<ShareBox>& boxes) const {
    const std::int64_t stride = padded(shape(m).cols);
    for (const HeldRows& held : layout_.held_by(layout_.rank, m)) {
      boxes.push_back({.unit = layout_.unit_of[m],
                       .held = held,
                       .first = first + held.row * stride + held.col,
                       .stride = stride,
                       .factor = factor_of(shape(m))});
    }
  }
  /// Appends this rank's parts of the matrices of `owner`, one after the other from element `at` on. Returns their
  /// number of elements, which is added to `at`.
  std::int64_t pack_for(int owner, std::int64_t& at, std::vector<ShareBox>& boxes) const {
    const std::int64_t begin = at;
    for (const std::size_t m : matrices_) {
      if (owners_[m] != owner) continue;
      for (const HeldRows& held : layout_.held_by(layout_.rank, m)) {
        boxes.push_back({.unit = layout_.unit_of[m],
                         .held = held,
                         .first = std::exchange(at, at + held.rows * held.cols),
                         .stride = held.cols,
                         .factor = factor_of(shape(m))});
      }
    }
    return at - begin;
  }
  /// Appends the parts that `holder` has of this rank's matrices, which are packed from element `at` on: moves from the
  /// packed buffer to the buffer of matrices, or back. Returns their number of elements, which is added to `at`.
  std::int64_t move_of(int holder, std::int64_t& at, bool back, std::vector<MovedBox>& boxes) const {
    const std::int64_t begin = at;
    for (const std::size_t m : matrices_) {
      if (owners_[m] != layout_.rank) continue;
      const std::int64_t stride = padded(shape(m).cols);
      for (const HeldRows& held : layout_.held_by(holder, m)) {
        const std::int64_t packed = std::exchange(at, at + held.rows * held.cols);
        const std::int64_t inside = place_.at(m) + held.row * stride + held.col;
        boxes.push_back({.from = back ? inside : packed,
                         .from_stride = back ? stride : held.cols,
                         .to = back ? packed : inside,
                         .to_stride = back ? held.cols : stride,
                         .rows = held.rows,
                         .cols = held.cols,
                         .first_block = 0});
      }
    }
    return at - begin;
  }
  /// Appends this rank's parts of the matrices in the gathered buffer of `owner`, which begins at `at`. Returns the
  /// number of elements of the buffer, which is added to `at`.
  std::int64_t gather_of(int owner, std::int64_t& at) {
    const std::int64_t begin = at;
    for (const std::size_t m : matrices_) {
      if (owners_[m] != owner) continue;
      const std::int64_t first = std::exchange(at, at + buffered_elements(shape(m)));
      if (owner != layout_.rank) add_to_shares(m, first, round_.taken_boxes);
    }
    return at - begin;
  }

  const MuonLayout& layout_;
  std::span<const int> owners_;
  const Matrices& matrices_;
  MuonRound round_;
  std::map<std::size_t, std::int64_t> place_;  // of this rank's matrices in their buffer
};

}  // namespace

std::vector<MuonRound> muon_rounds(const MuonLayout& layout, std::span<const int> owners, DType type,
                                   std::int64_t limit) {
  std::vector<MuonRound> rounds;
  for (const Matrices& matrices : cut_rounds(layout.slices.front(), owners, layout.sharing, type, limit)) {
    rounds.push_back(RoundBuilder(layout, owners, matrices).build());
  }
  return rounds;
}

std::int64_t product_bytes(const MuonRound::Batch& batch, DType type) {
  const std::int64_t sums = bytes(accumulator_of(type)), rows = padded(batch.rows), cols = padded(batch.cols),
                     k = std::min(rows, cols);
  return batch.count * (rows * cols * sums + k * k * (bytes(type) + sums));
}

namespace {

/// Returns the bytes of the tables of boxes of matrix `m`, see MuonRound, if all sharers have the slice of this one.
double table_bytes(const MuonLayout& layout, const MatrixSlice& slice, std::size_t unit, int owner) {
  const MatrixSharing& sharing = layout.sharing;
  const int copy = sharing.copy_of(layout.rank), sharer = sharing.sharer_of(layout.rank);
  const auto boxes = [&](int of_copy) {
    return static_cast<double>(held_rows(slice, layout.updated_by(of_copy * sharing.sharers + sharer, unit)).size());
  };
  const bool sends = sharing.sharded || sharing.copy_of(owner) == copy;
  if (owner != layout.rank) {
    return boxes(copy) * sizeof(StoredBox<float>) * (sends && !sharing.gathers() ? 2 : 1);  // sent, taken
  }
  double bytes = boxes(copy) * sizeof(StoredBox<float>);  // own
  for (int rank = 0; rank < sharing.ranks() && !sharing.gathers(); ++rank) {
    if (rank == layout.rank) continue;
    const bool receives = sharing.sharded || sharing.copy_of(rank) == copy;
    bytes += boxes(sharing.copy_of(rank)) * sizeof(MovedBox) * (receives ? 2 : 1);  // received, returned
  }
  return bytes;
}

}  // namespace

MuonLoad muon_load(const MuonLayout& layout, std::span<const int> owners, DType type, std::int64_t limit) {
  const MatrixSharing& sharing = layout.sharing;
  const std::vector<MatrixSlice>& slices = layout.slices[static_cast<std::size_t>(sharing.sharer_of(layout.rank))];
  MuonLoad load;
  for (const Matrices& matrices : cut_rounds(slices, owners, sharing, type, limit)) {
    std::vector<MuonRound::Batch> batches;
    std::int64_t elements = 0, products = 0, sent = 0, received = 0, returned = 0, taken = 0;
    for (const std::size_t m : matrices) {
      const MatrixSlice& slice = slices[m];
      const std::size_t unit = layout.unit_of[m];
      std::int64_t held = 0;
      for (const HeldRows& rows : held_rows(slice, layout.updated_by(layout.rank, unit))) held += rows.rows * rows.cols;
      const bool own = owners[m] == layout.rank;
      load.table_bytes += table_bytes(layout, slice, unit, owners[m]);
      if (own) {
        add_matrix(slice, batches, elements);
        load.flops += newton_schulz_flops(slice.rows, slice.cols);
      }
      if (sharing.gathers()) {
        taken += buffered_elements(slice);
        load.gathered += own ? static_cast<double>(buffered_elements(slice)) : 0;
      } else if (own) {
        received += slice.elements() - held;
        returned += (sharing.sharded ? 1 : sharing.copies) * slice.elements() - held;
      } else {
        sent += sharing.sharded || sharing.copy_of(owners[m]) == sharing.copy_of(layout.rank) ? held : 0;
        taken += held;
      }
    }
    for (const MuonRound::Batch& batch : batches) products = std::max(products, product_bytes(batch, type));
    const std::int64_t messages = std::max(sent + received, returned + taken) * bytes(type);
    load.exchanged += static_cast<double>(sent + returned);
    load.peak_bytes =
        std::max(load.peak_bytes, static_cast<double>(elements * bytes(type) + std::max(products, messages)));
    ++load.rounds;
  }
  return load;
}

}  // namespace lyceum
