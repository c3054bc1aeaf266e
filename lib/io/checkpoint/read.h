#pragma once

#include <filesystem>

#include "io/checkpoint/contents.h"

namespace lyceum {

/// One checkpoint opened for reading: any rank, any box, intersecting whatever boxes were saved.
class CheckpointReader {
 public:
  /// Reads manifest.json. Throws a bad_input Error that names file and cause. At most `open_shards` are open at a time:
  /// a process may have some thousand files, and a job more ranks.
  explicit CheckpointReader(std::filesystem::path directory, std::size_t open_shards = 256);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;

  struct Entry {
    std::string name;
    Shape shape;
  };
  const CheckpointHeader& header() const;
  const std::filesystem::path& directory() const;
  /// All logical tensors, in order of their names.
  const std::vector<Entry>& tensors() const;
  /// True if it has the states of update rules; without them a run continues with new ones.
  bool has_optimizer_state() const;
  /// Null when there is no such tensor.
  const Entry* find(const std::string& name) const;
  /// Fills `values` (row-major, f32) with the box. The digest of each shard is verified before HDF5 first opens it.
  void read(const std::string& name, const Box& box, float* values) const;
  /// SHA-256 of the tokenizer that it brings; empty when it has none, as those of earlier versions.
  std::string tokenizer_sha256() const;
  /// The file of that tokenizer. Throws a bad_input Error when it is not what was written.
  std::filesystem::path tokenizer() const;
  /// Returns the text of transformers.json: the files that an imported model's folder had in addition to weights and
  /// tokenizer. Empty if the model was not imported. Throws a bad_input Error if the file has changed since it was
  /// saved.
  std::string transformers() const;
  /// Bytes of all its files.
  std::int64_t bytes() const;
  enum class Check { sizes, digests };
  /// Checks that the boxes cover every tensor once, that all files have their full length and, with Check::digests,
  /// that they hold what was written (reads everything). Returns the first problem, or an empty text.
  std::string problem(Check check = Check::digests) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum
