#include "io/run/lock.h"

#include "support.h"

/// Locks a run's folder that already has a file LOCK.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  using namespace std::chrono_literals;
  fuzz::input_file("LOCK", fuzz::text_of(data, size));
  return fuzz::taken_or_refused([&] {
    const RunLock lock(fuzz::folder(), {.beat = 1h, .silence = 0ms, .patience = 0ms});
    lock.require_held(true);
  });
}
