#pragma once

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "io/files/hdf5.h"
#include "io/files/hdf5_driver.h"

/// Shared by the files that implement io/files/hdf5.h; nobody else includes it.
namespace lyceum::hdf5 {

struct FileState {
  std::filesystem::path path;
  bool writable = false;
  std::shared_ptr<WriteError> error = std::make_shared<WriteError>();
};

/// "unable to open file: file signature not found": the outermost and the innermost line of the library's error stack.
std::string library_reason();
[[noreturn]] void fail_file(const FileState& file, std::string_view action, std::string_view reason);

/// Throws when the call failed, or a write before it did.
template <class Result>
Result check(Result result, const FileState& file, std::string_view action) {
  if (file.error->number != 0) fail_file(file, action, std::strerror(file.error->number));
  if (result < 0) fail_file(file, action, library_reason());
  return result;
}

}  // namespace lyceum::hdf5
