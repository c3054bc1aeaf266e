#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "io/checkpoint/contents.h"
#include "io/files/sha256.h"

/// manifest.json: all that the reader knows before it opens a shard.
namespace lyceum {

constexpr std::string_view checkpoint_format = "lyceum-checkpoint";
constexpr std::int64_t checkpoint_format_version = 1;
constexpr std::string_view manifest_name = "manifest.json";
constexpr std::string_view index_name = "index.h5";

struct StoredBox {
  std::size_t file;     // index into Manifest::files
  std::string dataset;  // path in that file
  Box box;              // what it is of the logical tensor
};

struct StoredTensor {
  std::string name;
  Shape shape;
  std::vector<StoredBox> boxes;
};

struct StoredFile {
  std::string name;  // next to the manifest
  FileDigest digest;
};

struct Manifest {
  CheckpointHeader header;
  std::vector<StoredFile> files;  // shards in rank order, the index, tokenizer and transformers.json where there are
  std::vector<StoredTensor> tensors;  // sorted by name
};

/// JSON, a line a file and a line a tensor; its last member is the SHA-256 of all bytes before it.
std::string manifest_text(const Manifest& manifest);
/// The manifest is of another format, not damaged: what another build of the program wrote.
class UnknownFormat : public Error {
 public:
  using Error::Error;
};
/// Throws a bad_input Error that names the file and the first thing that is wrong with it; UnknownFormat where that is
/// the format.
Manifest read_manifest(const std::filesystem::path& directory);

/// "rank-00003.h5"
std::string shard_name(int rank);
/// The logical name when the box is the whole tensor, else with the box as a slice: "lm_head/weight[0:2048,0:512]".
std::string dataset_name(const std::string& name, const Shape& shape, const Box& box);

/// What keeps the boxes from covering the tensor exactly once, or empty. `owner(i)` names who has box i.
std::string coverage_problem(const std::string& name, const Shape& shape, std::span<const Box> boxes,
                             const std::function<std::string(std::size_t)>& owner);
/// The first tensor that the boxes do not cover exactly once, or empty.
std::string coverage_problem(const Manifest& manifest);
/// Why the file is not the one that was written (missing, cut short, changed), or empty. `sizes_only`: without reading.
std::string file_problem(const std::filesystem::path& directory, const StoredFile& file, bool sizes_only = false);

}  // namespace lyceum
