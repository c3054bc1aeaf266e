#pragma once

#include <filesystem>

#include "io/checkpoint/contents.h"
#include "io/checkpoint/manifest.h"

namespace lyceum {

/// A checkpoint opened for reading. Any rank can read any box of any tensor, whatever mesh wrote the checkpoint. read()
/// may be called by several threads; the calls take turns.
class CheckpointReader {
 public:
  /// Reads manifest.json. Throws as read_manifest() does. At most `open_shards` files are open at a time, since a
  /// process may open only some thousand files and a job may have more ranks.
  explicit CheckpointReader(std::filesystem::path directory, std::size_t open_shards = 256);
  /// Uses `manifest`, which is the manifest of that directory.
  CheckpointReader(std::filesystem::path directory, Manifest manifest, std::size_t open_shards = 256);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;

  /// A logical tensor of the checkpoint. In the files it has the type f32 or bf16; read() widens.
  using Entry = StoredTensor;
  const CheckpointHeader& header() const;
  const std::filesystem::path& directory() const;
  /// Returns all logical tensors in the order of their names. After merge_adapters(), those of adapters are left out.
  const std::vector<Entry>& tensors() const;
  /// True if the checkpoint has optimiser state. A run that resumes without it begins with new state.
  bool has_optimizer_state() const;
  /// Returns the tensor of this name, or null. The pointer is valid as long as the reader.
  const Entry* find(const std::string& name) const;
  /// Makes find() and read() of a weight refer to its moving average (optim.ema) from now on, if it has one. Throws a
  /// usage Error if the checkpoint has no averages.
  void use_averages();
  /// True if the checkpoint has adapters (adapter_prefix).
  bool has_adapters() const;
  /// Makes read() of a matrix W with an adapter return W + scale · B · A from now on, rounded once to f32, and removes
  /// adapters from tensors() and find(). After use_averages(), A and B are averages, too. Throws a bad_input Error if
  /// an adapter is incomplete or does not fit its matrix.
  void merge_adapters(double scale);
  /// Reads a box of a tensor into `values` (row-major f32, box.extent.size() elements). Verifies the digest of each
  /// shard before HDF5 first opens it. Throws a bad_input Error if the tensor is missing, the box is not inside it, a
  /// shard is damaged, or the stored boxes do not cover the box exactly once.
  void read(const std::string& name, const Box& box, float* values) const;
  /// Returns the SHA-256 of the saved tokenizer; empty if there is none, as in checkpoints of earlier versions.
  std::string tokenizer_sha256() const;
  /// Returns the path of the saved tokenizer. Throws a bad_input Error if there is none or the file has changed since
  /// it was saved.
  std::filesystem::path tokenizer() const;
  /// Returns the text of transformers.json: the files that an imported model's folder had in addition to weights and
  /// tokenizer. Empty if the model was not imported. Throws a bad_input Error if the file has changed since it was
  /// saved.
  std::string transformers() const;
  /// Returns the size of all files together, in bytes, according to the manifest.
  std::int64_t bytes() const;
  /// How thoroughly problem() checks the files.
  enum class Check { sizes, digests };
  /// Checks that the boxes cover every tensor exactly once and that all files have their full length; with
  /// Check::digests also their SHA-256, which reads all files. Returns the first problem, or an empty string.
  std::string problem(Check check = Check::digests) const;

 private:
  struct Implementation;
  /// find() and read() without regard to merged adapters.
  const Entry* find_stored(const std::string& name) const;
  void read_stored(const std::string& name, const Box& box, float* values) const;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum
