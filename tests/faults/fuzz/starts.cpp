#include "io/run/starts.h"

#include "support.h"

/// Reads starts.jsonl of a run, and writes its records again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  const std::filesystem::path file = fuzz::input_file("starts.jsonl", fuzz::text_of(data, size));
  return fuzz::taken_or_refused([&] {
    for (const RunStart& start : read_starts(file)) {
      const std::filesystem::path copy = fuzz::input_file("copy.jsonl", "");
      record_start(copy, start);
      const std::vector<RunStart> again = read_starts(copy);
      fuzz::hold(again.size() == 1 && again[0].step == start.step && again[0].date == start.date &&
                     again[0].program == start.program && again[0].mesh == start.mesh &&
                     again[0].config == start.config,
                 "a start changes when it is written and read");
    }
  });
}
