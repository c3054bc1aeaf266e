#include "kernels/padding.h"

#include <algorithm>

namespace lyceum {

template <class T>
void run(const CpuStream&, const ClearPadding<T>& padding) {
  const Segments& segments = padding.segments;
  for (std::size_t e = 0; e < segments.rows.size(); ++e) {
    const std::int64_t first = segments.begin[e] + segments.rows[e];
    for (std::int64_t row = first; row < segments.begin[e + 1]; ++row) {
      std::fill_n(padding.x.row(row), padding.x.cols, T{});
    }
  }
}

LYCEUM_PADDING_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
