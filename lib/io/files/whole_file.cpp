#include "io/files/whole_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <memory>
#include <system_error>

#include "core/error.h"
#include "io/files/atomic_file.h"
#include "io/files/open_regular.h"
#include "io/files/system_reason.h"

namespace lyceum {

namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FileHandle = std::unique_ptr<std::FILE, Close>;

FileHandle open_for_reading(const std::filesystem::path& path) {
  const int descriptor = open_regular(path, O_RDONLY, Links::followed);
  return FileHandle(descriptor < 0 ? nullptr : fdopen(descriptor, "rb"));
}

}  // namespace

std::string read_part_of_file(const std::filesystem::path& path, std::int64_t first, std::int64_t count) {
  const FileHandle file = open_for_reading(path);
  require_input(file != nullptr, "{} cannot be opened: {}", path.native(), system_reason(errno));
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  require_input(!error, "{} cannot be read: {}", path.native(), system_reason(error));
  const std::int64_t left = std::max<std::int64_t>(0, static_cast<std::int64_t>(size) - first);
  std::string bytes(static_cast<std::size_t>(std::min(count, left)), '\0');
  const bool sought = fseeko(file.get(), first, SEEK_SET) == 0;
  require_input(sought, "{} cannot be read: {}", path.native(), system_reason(errno));
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file.get()));
  require_input(std::ferror(file.get()) == 0, "{} cannot be read: {}", path.native(), system_reason(errno));
  return bytes;
}

std::string read_whole_file(const std::filesystem::path& path) {
  return read_part_of_file(path, 0, std::numeric_limits<std::int64_t>::max());
}

void write_whole_file(const std::filesystem::path& path, std::string_view bytes) {
  if (path.has_parent_path()) make_directories(path.parent_path());
  replace_file(path, bytes);
}

}  // namespace lyceum
