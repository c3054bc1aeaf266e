#pragma once

#include "io/checkpoint/contents.h"
#include "io/checkpoint/manifest.h"
#include "parallel/comm/shared_work.h"

namespace lyceum {

/// A copy of pieces and their values in the host's memory. Throws if there is no memory for it.
struct HostCopy {
  explicit HostCopy(std::span<const CheckpointPiece> from);

  std::unique_ptr<float[]> values;
  std::vector<CheckpointPiece> pieces;
};

/// Writes the pieces of a rank to a file, a dataset each. Does not fsync. `run` calls what waits for the file system,
/// perhaps in another thread, which calls `before_each` before the values of each piece. Throws if `stop` is requested.
void write_shard(const std::filesystem::path& path, std::span<const CheckpointPiece> pieces,
                 const std::stop_token& stop, const RunOnFiles& run, const std::function<void()>& before_each);

/// Writes the file that has every logical tensor whole, as a view of the shards next to it, and calls `each` after each
/// tensor. Needs no more of the manifest than header and tensors.
void write_index(const std::filesystem::path& path, const Manifest& manifest, const std::function<void()>& each);

}  // namespace lyceum
