#include <stdlib.h>

#include "support.h"
#include "train/run/peak_cache.h"

/// Reads and updates the file of measured peaks in the user's cache folder.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  setenv("LYCEUM_CACHE", fuzz::folder().c_str(), 1);
  fuzz::input_file("peak-host.json", fuzz::text_of(data, size));
  return fuzz::taken_or_refused([&] {
    const PeakCache peaks("host", "build");
    const auto found = peaks.find("cpu");
    fuzz::hold(!found || found->flops > 0, "a peak is not positive");
    peaks.keep("gpu", {.flops = 1e12, .date = "2026-11-22"});
    const auto kept = peaks.find("gpu");
    fuzz::hold(kept && kept->flops == 1e12, "a stored peak is not found");
  });
}
