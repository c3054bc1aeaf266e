#pragma once

#include <optional>

#include "parallel/comm/process_group.h"
#include "support/temporary_directory.h"

namespace lyceum {

/// A temporary directory shared by all ranks. Rank 0 creates it, and removes it after a barrier. Construction and
/// destruction are collective.
class SharedDirectory {
 public:
  explicit SharedDirectory(const ProcessGroup& group) : group_(group) {
    if (group.rank() == 0) own_.emplace();
    path_ = group.broadcast(own_ ? own_->path().string() : "", 0);
  }
  ~SharedDirectory() { group_.barrier(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  const ProcessGroup& group_;
  std::optional<TemporaryDirectory> own_;
  std::filesystem::path path_;
};

}  // namespace lyceum
