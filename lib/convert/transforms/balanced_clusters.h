#pragma once

#include <cstdint>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Divides rows into `clusters` groups of equal size whose rows are near each other: k-means with balanced groups.
/// 1. The centres are row 0 and then, one at a time, the row farthest from all previous centres [Gonzalez 1985].
/// 2. Every two groups exchange rows, those that gain most first, as long as a pair of rows gains.
/// 3. The centres become the means of their groups. Repeat from 2 until no rows are exchanged, at most 200 times.
///
/// Neither step 2 nor step 3 raises the sum of squared distances of rows to their centres. Nothing is random: equal
/// rows give equal groups. Returns the indices of each group's rows, ascending. Throws a failed Error unless `clusters`
/// divides the number of rows.
std::vector<std::vector<std::int64_t>> balanced_clusters(const CpuStream& stream, Matrix<const float> rows,
                                                         std::int64_t clusters);

}  // namespace lyceum
