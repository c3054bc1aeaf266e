#pragma once

#include "io/checkpoint/contents.h"
#include "io/checkpoint/manifest.h"
#include "parallel/comm/shared_work.h"

namespace lyceum {

/// A copy of checkpoint slices with their values in the host's memory. The constructor throws a failed Error if there
/// is not enough memory.
struct HostCopy {
  explicit HostCopy(std::span<const CheckpointSlice> from);

  std::unique_ptr<float[]> values;      // of all slices in f32, one after the other
  std::unique_ptr<bfloat16[]> halves;   // of all slices in bf16
  std::vector<CheckpointSlice> slices;  // refer to `values` and `halves`
};

/// Writes the slices of a rank to an HDF5 file: small ones to a flat dataset per type, as PackedRanges says, and a
/// dataset for each of the others. Does not fsync. `run` executes every action that may wait for the file system,
/// possibly in another thread; in such an action `before_each` is called before the values of each slice are written.
/// Throws a failed Error if a stop is requested or the file cannot be written.
void write_shard(const std::filesystem::path& path, std::span<const CheckpointSlice> slices,
                 const std::stop_token& stop, const RunOnFiles& run, const std::function<void()>& before_each);

/// Writes index.h5, in which every logical tensor is one virtual dataset that refers to the shards in the same
/// directory, and fsyncs it. Calls `each` after each tensor. Uses only the header and the tensors of the manifest,
/// which must be in the order of their names, and whose StoredSlice::file must be the rank that writes the shard.
/// Throws a failed Error if the file cannot be written.
void write_index(const std::filesystem::path& path, const Manifest& manifest, const std::function<void()>& each);

}  // namespace lyceum
