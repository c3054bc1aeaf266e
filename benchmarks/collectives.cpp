// Measures all_reduce and all_to_all by size, against a memcpy of the same bytes in the same run:
//   mpirun -n 4 bench_collectives
// GB/s is the payload of one rank divided by the median time; "/ memcpy" is the time in units of that memcpy.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "core/clock.h"
#include "core/random.h"
#include "parallel/comm/ledger.h"
#include "parallel/comm/mpi_session.h"

namespace {

using namespace lyceum;

struct Spread {
  double median, low, high;  // seconds
};

/// Returns the median and the first and ninth decile of the slowest rank's times. A barrier precedes each timed call.
/// Collective.
Spread measure(const ProcessGroup& group, int repeats, const std::function<void()>& call) {
  std::vector<double> times(static_cast<std::size_t>(repeats));
  for (int i = 0; i < 3; ++i) call();
  for (double& time : times) {
    group.barrier();
    const auto begin = Clock::now();
    call();
    time = seconds_since(begin);
  }
  group.all_reduce(times, Reduction::max);
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[times.size() / 10], times[times.size() * 9 / 10]};
}

void print_row(const ProcessGroup& group, const char* name, std::size_t bytes, Spread time, Spread copy) {
  if (group.rank() != 0) return;
  fmt::print("{:<11} {:>10} {:>11.1f} {:>11.1f} {:>11.1f} {:>9.3f} {:>9.2f}\n", name, bytes, time.median * 1e6,
             time.low * 1e6, time.high * 1e6, static_cast<double>(bytes) / time.median * 1e-9,
             time.median / copy.median);
}

void measure_size(const ProcessGroup& group, std::size_t bytes) {
  const int repeats = static_cast<int>(std::clamp<std::size_t>((std::size_t{64} << 20) / bytes, 7, 500));
  std::vector<float> values(bytes / sizeof(float)), other(values.size());
  fill_normal(values, 1.0, Philox(1, "benchmark"), 0);

  const Spread copy = measure(group, repeats, [&] { std::memcpy(other.data(), values.data(), bytes); });
  print_row(group, "memcpy", bytes, copy, copy);
  std::copy(values.begin(), values.end(), other.begin());
  print_row(group, "all_reduce", bytes, measure(group, repeats, [&] { group.all_reduce(other, Reduction::max); }),
            copy);

  const auto ranks = static_cast<std::size_t>(group.size());
  const std::vector<std::int64_t> rows(ranks, static_cast<std::int64_t>(bytes / sizeof(float) / ranks));
  const auto exchange = [&] {
    group.all_to_all({.sent = values.data(),
                      .send_rows = rows,
                      .received = other.data(),
                      .receive_rows = rows,
                      .row_bytes = sizeof(float)});
  };
  print_row(group, "all_to_all", bytes, measure(group, repeats, exchange), copy);
}

/// Prints the cost of recording one operation in the ledger, next to that of the smallest operation. Collective.
void measure_ledger(const ProcessGroup& group) {
  constexpr int times = 100'000;
  LedgerEntry entry;
  put(entry.group_name, "benchmark");
  put(entry.operation, "all_reduce");
  Ledger ledger;
  const int slot = ledger.join(1);
  const auto begin = Clock::now();
  for (entry.index = 0; entry.index < times; ++entry.index) ledger.finish(ledger.start(entry, slot));
  const double noted = seconds_since(begin);
  std::vector<float> one(1);
  const Spread reduce = measure(group, 2000, [&] { group.all_reduce(one); });
  if (group.rank() != 0) return;
  fmt::print("ledger: {:.0f} ns per operation; all_reduce of one element: {:.2f} us\n", noted / times * 1e9,
             reduce.median * 1e6);
}

}  // namespace

int main() {
  const MpiSession session;
  const ProcessGroup world = session.world(60);
  if (world.rank() == 0) {
    fmt::print("{} ranks, {} of them on {}\n{:<11} {:>10} {:>11} {:>11} {:>11} {:>9} {:>9}\n", world.size(),
               session.local_size(), session.host(), "operation", "bytes", "median us", "10 % us", "90 % us", "GB/s",
               "/ memcpy");
  }
  measure_ledger(world);
  for (std::size_t bytes = 256; bytes <= std::size_t{64} << 20; bytes *= 8) measure_size(world, bytes);
  return 0;
}
