#include "config/binding.h"
#include "config/check.h"
#include "support.h"

/// Parses an INI file of a checkpoint, which must be complete, and of a user, of which all readable keys are used.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  const std::string text(fuzz::text_of(data, size));
  fuzz::taken_or_refused([&] { parse_config(text, "input"); });
  return fuzz::taken_or_refused([&] {
    LoadedConfig loaded = read_config(std::vector<std::string>{"--config", fuzz::input_file("run.ini", text)});
    const std::string written = to_ini(loaded.config);
    fuzz::hold(to_ini(parse_config(written, "what was written").config) == written,
               "a configuration changes when it is written and read");
    print_config(loaded);
    for (const int ranks : {1, 8}) {
      Config config = loaded.config;
      const std::vector<std::string> before = contradictions(config, ranks);
      resolve(config, ranks);
      const std::string once = to_ini(config);
      resolve(config, ranks);
      fuzz::hold(to_ini(config) == once, "a second resolve() changes a configuration");
      // A contradiction of several stages is listed once if its text is the same for all of them. resolve() may change
      // that, since some texts give advice with derived values.
      const std::vector<std::string> after = contradictions(config, ranks);
      fuzz::hold(config.training_stages.empty() ? after.size() == before.size() : after.empty() == before.empty(),
                 "resolve() changes the contradictions of a configuration");
    }
    require_none(loaded.mistakes);
  });
}
