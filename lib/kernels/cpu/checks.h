#pragma once

#include <algorithm>
#include <span>

#include "kernels/checks.h"

namespace lyceum {

/// Throws an Error unless every index is in [first, bound); otherwise a kernel would access memory outside its
/// operands.
template <class Index>
void require_indices(std::string_view kernel, std::string_view name, std::span<const Index> indices, std::int64_t first,
                     std::int64_t bound) {
  Index least = static_cast<Index>(first), largest = static_cast<Index>(first);
#pragma omp simd reduction(min : least) reduction(max : largest)
  for (std::size_t i = 0; i < indices.size(); ++i) {
    least = std::min(least, indices[i]);
    largest = std::max(largest, indices[i]);
  }
  require(indices.empty() || (least >= first && largest < bound), "{}: {} contains {}, outside of [{}, {})", kernel,
          name, least < first ? least : largest, first, bound);
}

}  // namespace lyceum
