#include "io/checkpoint/checkpoint.h"
#include "support.h"

/// Resolves LATEST in a folder of checkpoints. With any contents, it must give a checkpoint of that folder.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  [[maybe_unused]] static const bool ready = [] {
    for (const std::int64_t step : {1, 20}) {
      std::filesystem::create_directories(fuzz::folder() / checkpoint_name(step));
      fuzz::input_file(checkpoint_name(step) + "/manifest.json", "{}");
    }
    return true;
  }();
  fuzz::input_file("LATEST", fuzz::text_of(data, size));
  const std::filesystem::path found = resolve_checkpoint(fuzz::folder());
  fuzz::hold(found == fuzz::folder() / checkpoint_name(1) || found == fuzz::folder() / checkpoint_name(20),
             "LATEST names a checkpoint of another folder");
  return 0;
}
