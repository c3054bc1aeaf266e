#include "config/binding.h"
#include "support.h"

/// Parses the arguments of a command, one per line.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  std::vector<std::string> arguments;
  const std::string_view text = fuzz::text_of(data, size);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    arguments.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return fuzz::taken_or_refused([&] {
    const LoadedConfig loaded = read_config(arguments);
    const std::string written = to_ini(loaded.config);
    fuzz::hold(to_ini(parse_config(written, "what was written").config) == written,
               "a configuration changes when it is written and read");
    load_config(arguments);
  });
}
