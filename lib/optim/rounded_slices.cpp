#include "optim/rounded_slices.h"

#include <algorithm>

namespace lyceum {

namespace {

/// Appends the matrices of a slice, one after another, that consist of its last two dimensions (of a vector: one row).
/// Their ends are set by the caller.
void append_matrices(const ParameterSlice& slice, std::int64_t first, std::uint64_t key,
                     std::vector<RoundedSlice>& slices) {
  const int last = slice.shape.rank() - 1;
  const std::int64_t rows = last > 0 ? slice.extent[last - 1] : 1, pitch = slice.in_memory()[last];
  if (slice.extent.size() == 0) return;
  const bool whole_rows = slice.extent[last] == slice.shape[last] && pitch == slice.shape[last];
  for (std::int64_t m = 0; m < slice.extent.size() / (rows * slice.extent[last]); ++m) {
    std::int64_t rest = m, origin = 0, stride = slice.shape[last];
    if (last > 0) {
      origin = slice.offset[last - 1] * stride;
      stride *= slice.shape[last - 1];
    }
    for (int axis = last - 2; axis >= 0; --axis) {
      origin += (slice.offset[axis] + rest % slice.extent[axis]) * stride;
      rest /= slice.extent[axis];
      stride *= slice.shape[axis];
    }
    slices.push_back({.end = 0,
                      .first = first + m * rows * pitch,
                      .pitch = whole_rows ? rows * pitch : pitch,
                      .origin = origin + slice.offset[last],
                      .stride = whole_rows ? rows * pitch : slice.shape[last],
                      .key = key});
  }
}

}  // namespace

std::vector<RoundedSlice> rounded_slices(std::uint64_t seed, const ParameterUnit& unit, std::int64_t begin) {
  std::vector<RoundedSlice> slices;
  for (std::size_t p = 0; p < unit.parameters().size(); ++p) {
    for (const ParameterSlice& slice : unit.parameters()[p]->slices) {
      append_matrices(slice, unit.first_of(p) + slice.first - begin, rounding_key(seed, slice.name), slices);
    }
  }
  if (slices.empty()) slices.push_back({.end = 0, .first = -begin, .pitch = 1, .origin = 0, .stride = 1, .key = 0});
  for (std::size_t s = 0; s + 1 < slices.size(); ++s) slices[s].end = slices[s + 1].first;
  slices.back().end = std::max(slices.back().first, unit.size() - begin);
  return slices;
}

}  // namespace lyceum
