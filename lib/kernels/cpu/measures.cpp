#include "kernels/measures.h"

#include <cmath>
#include <numeric>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/squares.h"

namespace lyceum {

template <class T>
void run(const CpuStream& stream, const AddSquares<T>& add) {
  require_length("AddSquares", "rows", add.rows, add.x.rows);
  require_length("AddSquares", "y", add.y, 1);
  parallel_for(stream, add.x.rows, rows_per_thread(add.x.cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      add.rows[static_cast<std::size_t>(r)] = sum_of_squares(add.x.row(r), add.x.cols);
    }
  });
  add.y[0] += std::accumulate(add.rows.begin(), add.rows.end(), 0.0);
}

template <class A>
void run(const CpuStream&, const RaiseToLargest<A>& raise) {
  require_length("RaiseToLargest", "y", raise.y, 1);
  double largest = raise.y[0];
  for (const A x : raise.x) {
    const auto value = static_cast<double>(x);
    if (value > largest || std::isnan(value)) largest = value;  // no number is greater than NaN
  }
  raise.y[0] = largest;
}

LYCEUM_MEASURES_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
