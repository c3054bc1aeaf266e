#pragma once

#include <cstdint>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Cuts rows into `clusters` equal groups of rows that lie near each other: k-means whose groups have one size. Its
/// centres begin at row 0 and, one by one, at the row farthest from all before [Gonzalez 1985]. Then rounds of two
/// steps, neither of which raises the sum of squared distances of rows to their centres, end when it does not fall any
/// more: two groups exchange rows, those that gain most first, as long as a pair of them gains; centres become means.
/// Nothing is random: the same rows give the same groups, each in ascending order. `clusters` divides the rows.
std::vector<std::vector<std::int64_t>> balanced_clusters(const CpuStream& stream, Matrix<const float> rows,
                                                         std::int64_t clusters);

}  // namespace lyceum
