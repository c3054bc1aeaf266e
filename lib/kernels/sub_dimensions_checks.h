#pragma once

#include "core/error.h"
#include "kernels/checks.h"
#include "kernels/router.h"
#include "kernels/sub_dimensions.h"

namespace lyceum {

// Checks of operands, used by all devices: throw an Error unless they fit together.

/// Throws an Error unless the numbers of sub-dimensions are valid: 0 <= always_on <= sub_dimensions, 0 < sub_dimensions
/// <= max_sub_dimensions.
inline void require_sub_dimensions(const char* kernel, std::int64_t sub_dimensions, std::int64_t always_on) {
  require(sub_dimensions > 0 && sub_dimensions <= max_sub_dimensions && always_on >= 0 && always_on <= sub_dimensions,
          "{}: cannot have {} sub-dimensions, {} of them always active: at most {} are supported", kernel,
          sub_dimensions, always_on, max_sub_dimensions);
}

template <class A>
void require_fitting(const SubDimensionFactors<A>& work) {
  const auto& [logits, index, always_on, scaling, factors] = work;
  require_sub_dimensions("SubDimensionFactors", logits.cols, always_on);
  require_extents("SubDimensionFactors", "index", index, logits.rows, index.cols);
  require_extents("SubDimensionFactors", "factors", factors, logits.rows, logits.cols);
}

template <class A>
void require_fitting(const SubDimensionFactorsBackward<A>& work) {
  const auto& [logits, index, always_on, scaling, d_factors, d_logits] = work;
  require_sub_dimensions("SubDimensionFactorsBackward", logits.cols, always_on);
  require_extents("SubDimensionFactorsBackward", "index", index, logits.rows, index.cols);
  require_extents("SubDimensionFactorsBackward", "d_factors", d_factors, logits.rows, logits.cols);
  require_extents("SubDimensionFactorsBackward", "d_logits", d_logits, logits.rows, logits.cols);
}

/// Throws an Error unless `sums` has the columns of a load and enough sequences for all tokens.
template <class Load, class Sums>
void require_load(const char* kernel, const Load& load, const Sums& sums) {
  require_extents(kernel, "load", sums, sums.rows, load_width(load.factors.cols));
  require(load.seq_len > 0 && load.first >= 0 && load.first + load.factors.rows <= sums.rows * load.seq_len,
          "{}: tokens {} to {} are not in {} sequences of {}", kernel, load.first, load.first + load.factors.rows,
          sums.rows, load.seq_len);
}

template <class A>
void require_fitting(const SubDimensionLoad<A>& work) {
  require_extents("SubDimensionLoad", "index", work.index, work.factors.rows, work.index.cols);
  require_load("SubDimensionLoad", work, work.load);
}

template <class A>
void require_fitting(const SubDimensionLoadBackward<A>& work) {
  require_extents("SubDimensionLoadBackward", "d_factors", work.d_factors, work.factors.rows, work.factors.cols);
  require_load("SubDimensionLoadBackward", work, work.d_load);
}

inline void require_fitting(const SubDimensionRows& rows) {
  require_length("SubDimensionRows", "source", rows.source, std::ssize(rows.pair_of_row));
}

/// Checks the operands that PlaceSubDimensions and its backward have in common. `y` is y or dy. Returns the number of
/// sub-dimensions.
template <class Place, class Y>
std::int64_t require_placed(const char* kernel, const Place& place, const Y& y) {
  const std::int64_t width = place.rows.cols, sub_dimensions = width > 0 ? y.cols / width : 0;
  require_sub_dimensions(kernel, sub_dimensions, place.always_on);
  require_extents(kernel, "y", y, place.index.rows, sub_dimensions * width);
  require_length(kernel, "slot", place.slot, place.index.size());
  if (place.dense.data) require_extents(kernel, "dense", place.dense, y.rows, place.always_on * width);
  if (place.factors.data) require_extents(kernel, "factors", place.factors, y.rows, sub_dimensions);
  return sub_dimensions;
}

template <class T>
std::int64_t require_fitting(const PlaceSubDimensions<T>& place) {
  return require_placed("PlaceSubDimensions", place, place.y);
}

template <class T>
std::int64_t require_fitting(const PlaceSubDimensionsBackward<T>& place) {
  const std::int64_t sub_dimensions = require_placed("PlaceSubDimensionsBackward", place, place.dy);
  if (place.dense.data) {
    require_extents("PlaceSubDimensionsBackward", "d_dense", place.d_dense, place.dy.rows,
                    place.always_on * place.rows.cols);
  }
  require_extents("PlaceSubDimensionsBackward", "d_rows", place.d_rows, place.rows.rows, place.rows.cols);
  require_extents("PlaceSubDimensionsBackward", "d_factors", place.d_factors, place.dy.rows, sub_dimensions);
  require_extents("PlaceSubDimensionsBackward", "factors", place.factors, place.dy.rows, sub_dimensions);
  return sub_dimensions;
}

template <class T>
void require_fitting(const AddPairs<T>& add) {
  require(add.k >= 0 && add.k <= max_sub_dimensions,
          "AddPairs: {} rows per token are not possible, at most {} are supported", add.k, max_sub_dimensions);
  require_length("AddPairs", "slot", add.slot, add.y.rows * add.k);
  require_extents("AddPairs", "rows", add.rows, add.rows.rows, add.y.cols);
}

}  // namespace lyceum
