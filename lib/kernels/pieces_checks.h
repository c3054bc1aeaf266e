#pragma once

#include "core/error.h"
#include "kernels/checks.h"
#include "kernels/pieces.h"
#include "kernels/router.h"

namespace lyceum {

// Checks of operands, used by all devices: throw an Error unless they fit together.

/// Throws an Error unless the numbers of sub-dimensions are valid: 0 <= always_on <= pieces, 0 < pieces <= most_pieces.
inline void require_sub_dimensions(const char* kernel, std::int64_t pieces, std::int64_t always_on) {
  require(pieces > 0 && pieces <= most_pieces && always_on >= 0 && always_on <= pieces,
          "{}: {} pieces, {} of them always active; at most {}", kernel, pieces, always_on, most_pieces);
}

template <class A>
void require_fitting(const PieceFactors<A>& pieces) {
  const auto& [logits, index, always_on, scaling, factors] = pieces;
  require_sub_dimensions("PieceFactors", logits.cols, always_on);
  require_extents("PieceFactors", "index", index, logits.rows, index.cols);
  require_extents("PieceFactors", "factors", factors, logits.rows, logits.cols);
}

template <class A>
void require_fitting(const PieceFactorsBackward<A>& pieces) {
  const auto& [logits, index, always_on, scaling, d_factors, d_logits] = pieces;
  require_sub_dimensions("PieceFactorsBackward", logits.cols, always_on);
  require_extents("PieceFactorsBackward", "index", index, logits.rows, index.cols);
  require_extents("PieceFactorsBackward", "d_factors", d_factors, logits.rows, logits.cols);
  require_extents("PieceFactorsBackward", "d_logits", d_logits, logits.rows, logits.cols);
}

/// Throws an Error unless `sums` has the columns of a load and enough sequences for all tokens.
template <class Load, class Sums>
void require_load(const char* kernel, const Load& load, const Sums& sums) {
  require_extents(kernel, "load", sums, sums.rows, load_width(load.factors.cols));
  require(load.seq_len > 0 && load.first >= 0 && load.first + load.factors.rows <= sums.rows * load.seq_len,
          "{}: tokens {} to {} of {} sequences of {}", kernel, load.first, load.first + load.factors.rows, sums.rows,
          load.seq_len);
}

template <class A>
void require_fitting(const PieceLoad<A>& pieces) {
  require_extents("PieceLoad", "index", pieces.index, pieces.factors.rows, pieces.index.cols);
  require_load("PieceLoad", pieces, pieces.load);
}

template <class A>
void require_fitting(const PieceLoadBackward<A>& pieces) {
  require_extents("PieceLoadBackward", "d_factors", pieces.d_factors, pieces.factors.rows, pieces.factors.cols);
  require_load("PieceLoadBackward", pieces, pieces.d_load);
}

inline void require_fitting(const PieceRows& rows) {
  require_length("PieceRows", "source", rows.source, std::ssize(rows.pair_of_row));
}

/// Checks the operands that PlacePieces and its backward have in common. `y` is y or dy. Returns the number of
/// sub-dimensions.
template <class Place, class Y>
std::int64_t require_placed(const char* kernel, const Place& place, const Y& y) {
  const std::int64_t width = place.rows.cols, pieces = width > 0 ? y.cols / width : 0;
  require_sub_dimensions(kernel, pieces, place.always_on);
  require_extents(kernel, "y", y, place.index.rows, pieces * width);
  require_length(kernel, "slot", place.slot, place.index.size());
  if (place.dense.data) require_extents(kernel, "dense", place.dense, y.rows, place.always_on * width);
  if (place.factors.data) require_extents(kernel, "factors", place.factors, y.rows, pieces);
  return pieces;
}

template <class T>
std::int64_t require_fitting(const PlacePieces<T>& place) {
  return require_placed("PlacePieces", place, place.y);
}

template <class T>
std::int64_t require_fitting(const PlacePiecesBackward<T>& place) {
  const std::int64_t pieces = require_placed("PlacePiecesBackward", place, place.dy);
  if (place.dense.data) {
    require_extents("PlacePiecesBackward", "d_dense", place.d_dense, place.dy.rows, place.always_on * place.rows.cols);
  }
  require_extents("PlacePiecesBackward", "d_rows", place.d_rows, place.rows.rows, place.rows.cols);
  require_extents("PlacePiecesBackward", "d_factors", place.d_factors, place.dy.rows, pieces);
  require_extents("PlacePiecesBackward", "factors", place.factors, place.dy.rows, pieces);
  return pieces;
}

template <class T>
void require_fitting(const AddPairs<T>& add) {
  require(add.k >= 0 && add.k <= most_pieces, "AddPairs: {} rows per token; at most {}", add.k, most_pieces);
  require_length("AddPairs", "slot", add.slot, add.y.rows * add.k);
  require_extents("AddPairs", "rows", add.rows, add.rows.rows, add.y.cols);
}

}  // namespace lyceum
