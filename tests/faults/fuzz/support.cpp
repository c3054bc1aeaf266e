#include "support.h"

#include <fcntl.h>
#include <hdf5.h>
#include <stdlib.h>
#include <unistd.h>

#include <stdexcept>
#include <system_error>

namespace lyceum::fuzz {
namespace {

struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "lyceum-fuzz-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("cannot create a temporary folder: " + name);
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

}  // namespace

std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

const std::filesystem::path& folder() {
  static const Folder own;
  return own.path;
}

std::filesystem::path input_file(const std::filesystem::path& name, std::string_view bytes) {
  const std::filesystem::path path = folder() / name;
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  const auto size = static_cast<ssize_t>(bytes.size());
  const bool written = file >= 0 && write(file, bytes.data(), bytes.size()) == size && ftruncate(file, size) == 0;
  if (file >= 0) close(file);
  if (!written) throw std::runtime_error("cannot be written: " + path.string());
  return path;
}

void reuse_hdf5_memory() {
  H5dont_atexit();  // lib/io calls this, too; it must be the first call of HDF5
  constexpr int without_limit = -1;
  H5set_free_list_limits(without_limit, without_limit, without_limit, without_limit, without_limit, without_limit);
}

void hold(bool condition, const std::string& what) {
  if (!condition) throw std::logic_error(what);
}

void require_refusal(const Error& error) {
  if (error.code() != ExitCode::usage && error.code() != ExitCode::bad_input) throw error;
  const std::string_view message = error.what();
  // Only messages of usage Errors may have several lines: those on a configuration have one per mistake.
  hold(error.code() == ExitCode::usage || message.find('\n') == std::string_view::npos,
       "a message has more than one line");
}

}  // namespace lyceum::fuzz
