#include "io/files/text_stream.h"

#include <vector>

#include "support.h"

/// Reads a file that may be compressed.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  const std::filesystem::path file = fuzz::input_file("text", fuzz::text_of(data, size));
  return fuzz::taken_or_refused([&] {
    constexpr std::size_t enough = std::size_t{1} << 26;  // a small file may decompress to a very large one
    std::vector<char> buffer(1000);
    std::string all;
    TextStream stream(file);
    for (std::size_t bytes = 1; bytes > 0 && all.size() < enough;) {
      bytes = stream.read(buffer);
      all.append(buffer.data(), bytes);
    }
    fuzz::hold(stream.compressed() || all == fuzz::text_of(data, size),
               "a stream returns other bytes than its file has");
    if (all.size() < 2) return;
    TextStream again(file);
    again.skip(static_cast<std::int64_t>(all.size() / 2));
    std::vector<char> rest(all.size() - all.size() / 2);
    fuzz::hold(again.read(rest) == rest.size() && std::string(rest.begin(), rest.end()) == all.substr(all.size() / 2),
               "bytes after skipped ones change");
  });
}
