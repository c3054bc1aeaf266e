#pragma once

#include "kernels/cuda/warp_tiles.cuh"
#include "kernels/cuda/warpgroup.cuh"

namespace lyceum::cuda {

/// Begins c = A · Bᵀ for 64 rows of ATile, from `row` on, and all rows of BTile, as one group of products.
template <class ATile, class BTile, int columns, class Machine>
LYCEUM_DEVICE void begin_multiply(const Machine& m, int a_tile, int row, int b_tile, Accumulators<1, columns>& c) {
  static_assert(ATile::chunks == BTile::chunks);
  m.begin_products(c);
  LYCEUM_UNROLL
  for (int k = 0; k < ATile::chunks / 2; ++k) {
    m.template multiply_shared<columns, false, false>(
        c.at[0], MatrixDescriptor::by_columns(m.shared_address(a_tile + ATile::columns(row, k))),
        MatrixDescriptor::by_columns(m.shared_address(b_tile + BTile::columns(0, k))), k > 0);
  }
  m.end_group();
}

/// Begins c += a · B, as one group of products. `a` must not change until the group is complete.
template <class BTile, int depth, int columns, class Machine>
LYCEUM_DEVICE void begin_multiply_add(const Machine& m, Operand<1, depth>& a, int b_tile, Accumulators<1, columns>& c) {
  m.begin_products(c, a);
  LYCEUM_UNROLL
  for (int k = 0; k < depth / 16; ++k) {
    m.multiply_words(
        c.at[0], a.at[0][k],
        MatrixDescriptor::by_summed_rows(m.shared_address(b_tile + BTile::summed_rows(k)), BTile::panel_bytes));
  }
  m.end_group();
}

}  // namespace lyceum::cuda
