#pragma once

#include <string_view>

namespace lyceum {

/// True if a file that begins with this text is a pointer of Git LFS: what is in the place of a large file that was not
/// downloaded.
constexpr bool is_lfs_pointer(std::string_view beginning) {
  return beginning.starts_with("version https://git-lfs.github.com/spec/");
}

/// For messages about such a file: "FILE: it is …".
constexpr std::string_view lfs_pointer_advice = "a pointer of Git LFS; `git lfs pull` replaces it by the file";

}  // namespace lyceum
