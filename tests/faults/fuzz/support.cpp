#include "support.h"

#include <stdlib.h>

#include <fstream>
#include <stdexcept>
#include <system_error>

namespace lyceum::fuzz {
namespace {

struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "lyceum-fuzz-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder can be made: " + name);
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
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw std::runtime_error("cannot be written: " + path.string());
  return path;
}

void hold(bool condition, const std::string& what) {
  if (!condition) throw std::logic_error(what);
}

void require_refusal(const Error& error) {
  if (error.code() != ExitCode::usage && error.code() != ExitCode::bad_input) throw error;
  const std::string_view message = error.what();
  // A message on a configuration has a line a mistake.
  hold(error.code() == ExitCode::usage || message.find('\n') == std::string_view::npos, "a message is not one line");
}

}  // namespace lyceum::fuzz
