#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "io/checkpoint/contents.h"
#include "io/files/sha256.h"

/// manifest.json: the description of a checkpoint that a reader needs before it opens a shard.
namespace lyceum {

constexpr std::string_view checkpoint_format = "lyceum-checkpoint";
/// The newest version. Version 1 has tensors in f32 and one dataset per box. Version 2 may also have tensors in bf16,
/// version 3 also packed boxes (StoredSlice::first).
constexpr std::int64_t checkpoint_format_version = 3;
constexpr std::string_view manifest_name = "manifest.json";
constexpr std::string_view index_name = "index.h5";

/// A box of a logical tensor in a shard: a dataset of the shape of the box, or, if the box is packed, a range of the
/// flat dataset that has the small boxes of the shard.
struct StoredSlice {
  std::size_t file;     // index into Manifest::files
  std::string dataset;  // path of the HDF5 dataset in that file
  Box box;              // in the logical tensor
  /// If the box is packed: the index of its first element in the dataset; the others follow in row-major order.
  std::optional<std::int64_t> first{};
};

/// A logical tensor and the boxes that it is stored in, which cover it exactly once.
struct StoredTensor {
  std::string name;
  Shape shape;
  std::vector<StoredSlice> boxes;
  DType type = DType::f32;  // f32 or bf16
};

/// A file of a checkpoint with its size and SHA-256.
struct StoredFile {
  std::string name;  // without a path: the file is in the directory of the manifest
  FileDigest digest;
};

/// The contents of manifest.json.
struct Manifest {
  CheckpointHeader header;
  /// The shards in rank order, the index, then tokenizer.model and transformers.json if saved.
  std::vector<StoredFile> files;
  std::vector<StoredTensor> tensors;  // sorted by name
};

/// Returns the lowest version that a checkpoint with these tensors can have.
std::int64_t format_version_of(std::span<const StoredTensor> tensors);
/// Returns the manifest as JSON, with one line per file and one per tensor. Its last member is the SHA-256 of all bytes
/// before it.
std::string manifest_text(const Manifest& manifest);
/// The manifest has a format or version that this build cannot read. Another build wrote it; it is not damaged.
class UnknownFormat : public Error {
 public:
  using Error::Error;
};
/// Reads and checks manifest.json of a checkpoint. Throws UnknownFormat for another format or version, and otherwise a
/// bad_input Error that names the file and its first problem.
Manifest read_manifest(const std::filesystem::path& directory);
/// Reads manifest.json as read_manifest() does, but passes the tensors to `each` in the order of the file and does not
/// store them, so the memory that it takes does not grow with their number. Does not check that names are unique.
Manifest scan_manifest(const std::filesystem::path& directory, const std::function<void(StoredTensor&&)>& each);
/// Reads header and files of manifest.json and checks the digest of the whole, but does not parse the tensors. Takes
/// little time and memory. Throws as read_manifest() does.
Manifest read_manifest_head(const std::filesystem::path& directory);

/// Returns the file name of a rank's shard, such as "rank-00003.h5".
std::string shard_name(int rank);
/// Returns the path of a box's dataset in its shard: the tensor's name if the box is the whole tensor, else the name
/// with the box as a slice, such as "lm_head/weight[0:2048,0:512]".
std::string dataset_name(const std::string& name, const Shape& shape, const Box& box);

/// Returns why the boxes do not cover the tensor exactly once, or an empty string if they do. `owner(i)` returns the
/// name of the file or rank that has box i, for the message.
std::string coverage_problem(const std::string& name, const Shape& shape, std::span<const Box> boxes,
                             const std::function<std::string(std::size_t)>& owner);
/// Returns such a problem of a tensor of a manifest with these files, or an empty string.
std::string coverage_problem(const std::string& name, const Shape& shape, std::span<const StoredSlice> boxes,
                             std::span<const StoredFile> files);
/// Returns the first such problem of all tensors of a manifest, or an empty string.
std::string coverage_problem(const Manifest& manifest);
/// Returns how a file differs from its entry in the manifest (missing, wrong size, wrong SHA-256), or an empty string.
/// `sizes_only`: compares sizes without reading the file.
std::string file_problem(const std::filesystem::path& directory, const StoredFile& file, bool sizes_only = false);

}  // namespace lyceum
