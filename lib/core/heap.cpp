#include "core/heap.h"

#include <malloc.h>

namespace lyceum {

void limit_heap() {
  constexpr int mebibyte = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, mebibyte);
  mallopt(M_TRIM_THRESHOLD, 2 * mebibyte);
}

void return_unused_heap() { malloc_trim(0); }

}  // namespace lyceum
