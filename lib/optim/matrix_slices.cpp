#include "optim/matrix_slices.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "io/files/box.h"

namespace lyceum {

std::vector<MatrixSlice> matrix_slices(const RuleAssignment& rules, const ParameterUnit& unit) {
  std::vector<MatrixSlice> slices;
  double before = 0;  // elements of the whole tensors so far
  for (std::size_t p = 0; p < unit.parameters().size(); ++p) {
    for (const ParameterSlice& slice : unit.parameters()[p]->slices) {
      const auto elements = static_cast<double>(slice.shape.size());
      before += elements;
      if (rules.rule_of(slice.name, slice.shape) != WeightRule::muon) continue;
      slices.push_back({.rows = slice.shape[0],
                        .cols = slice.shape[1],
                        .first = unit.first_of(p) + slice.first,
                        .pitch = slice.in_memory()[1],
                        .row = slice.offset[0],
                        .col = slice.offset[1],
                        .own_rows = slice.extent[0],
                        .own_cols = slice.extent[1],
                        .place = before - elements / 2});
    }
  }
  for (MatrixSlice& slice : slices) slice.place /= before;
  return slices;
}

std::vector<HeldRows> held_rows(const MatrixSlice& slice, const Range& range) {
  const Range held = common({slice.first, slice.own_rows * slice.pitch}, range);
  std::vector<HeldRows> rows;
  if (held.count == 0) return rows;
  std::int64_t at = held.first;
  for (const Box& box : boxes_of_range({slice.own_rows, slice.pitch}, held.first - slice.first, held.count)) {
    const std::int64_t cols = std::min(box.extent[1], slice.own_cols - box.offset[1]);  // without padding
    if (cols > 0) {
      rows.push_back({.first = at,
                      .stride = slice.pitch,
                      .row = slice.row + box.offset[0],
                      .col = slice.col + box.offset[1],
                      .rows = box.extent[0],
                      .cols = cols});
    }
    at += box.extent.size();
  }
  return rows;
}

double newton_schulz_flops(std::int64_t rows, std::int64_t cols) {
  const auto k = static_cast<double>(std::min(rows, cols)), n = static_cast<double>(std::max(rows, cols));
  return 5 * (4 * k * k * n + 2 * k * k * k);
}

std::vector<int> choose_owners(std::span<const MatrixSlice> matrices, const MatrixSharing& sharing,
                               std::span<double> loads) {
  require(std::ssize(loads) == sharing.ranks(), "{} loads of {} ranks", loads.size(), sharing.ranks());
  std::vector<double> flops;
  for (const MatrixSlice& matrix : matrices) flops.push_back(newton_schulz_flops(matrix.rows, matrix.cols));
  const double all = std::accumulate(flops.begin(), flops.end(), std::accumulate(loads.begin(), loads.end(), 0.0));
  const double average = all / sharing.ranks() * (1 + 1e-9);
  std::vector<std::size_t> order(matrices.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return flops[a] > flops[b]; });
  std::vector<int> owners(matrices.size());
  for (const std::size_t m : order) {
    const auto home = static_cast<int>(matrices[m].place * sharing.copies);
    const auto near = loads.begin() + std::min(home, sharing.copies - 1) * sharing.sharers;
    auto owner = std::min_element(near, near + sharing.sharers);
    if (!sharing.sharded || *owner + flops[m] > average) owner = std::ranges::min_element(loads);
    *owner += flops[m];
    owners[m] = static_cast<int>(owner - loads.begin());
  }
  return owners;
}

}  // namespace lyceum
