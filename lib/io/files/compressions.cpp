#include "io/files/compressions.h"

#include <boost/algorithm/string/case_conv.hpp>

#include <algorithm>
#include <array>
#include <string>

#include "io/files/gzip.h"
#include "io/files/zstandard.h"

namespace lyceum {

namespace {

/// A compression format: how to recognise and decode its files.
struct Compression {
  std::array<std::string_view, 2> endings;  // of file names, in lower case
  bool (*begins)(std::string_view beginning);
  std::unique_ptr<Decompressor> (*make)();
};

constexpr std::array compressions{Compression{{".gz", ".gzip"}, begins_gzip, make_gzip},
                                  Compression{{".zst", ".zstd"}, begins_zstandard, make_zstandard}};

}  // namespace

std::unique_ptr<Decompressor> decompressor_for(std::string_view beginning) {
  for (const Compression& one : compressions) {
    if (one.begins(beginning)) return one.make();
  }
  return nullptr;
}

std::filesystem::path uncompressed_name(const std::filesystem::path& file) {
  const std::filesystem::path name = file.filename();
  const std::string ending = boost::algorithm::to_lower_copy(name.extension().native());
  const bool compressed = std::ranges::any_of(compressions, [&](const Compression& one) {
    return std::ranges::find(one.endings, ending) != one.endings.end();
  });
  return compressed ? name.stem() : name;
}

}  // namespace lyceum
