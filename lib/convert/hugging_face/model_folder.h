#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convert/hugging_face/architecture.h"
#include "convert/hugging_face/block_scales.h"
#include "io/files/safetensors.h"

namespace lyceum::hugging_face {

constexpr const char *config_name = "config.json", *weights_name = "model.safetensors",
                     *index_name = "model.safetensors.index.json";

/// True if the file exists. Throws a bad_input Error if this cannot be determined, or if it is a link to a missing
/// file, as incomplete downloads leave them.
bool has_file(const std::filesystem::path& file);

/// Reads a JSON object from a file. Throws a bad_input Error that names the file if it cannot be read or has another
/// form.
Json read_object(const std::filesystem::path& file);

/// A model in a folder, as transformers saves it: config.json and either model.safetensors or several such files that
/// model.safetensors.index.json names. Weights in FP8 with factors for blocks are read as f32.
class ModelFolder {
 public:
  /// Reads everything except the values of the weights. Throws a bad_input Error that names the file if it is missing
  /// or damaged, or if Lyceum does not support the model.
  explicit ModelFolder(std::filesystem::path folder);

  const std::filesystem::path& path() const { return path_; }
  const Architecture& architecture() const { return *architecture_; }
  /// The model, as config_of() returns it, not resolved, and without missing_modules().
  const Config& config() const { return config_; }
  /// Returns the number of modules of multi-token prediction that config.json names although the files have no tensor
  /// of any: transformers loads and saves models without their modules, but does not change config.json.
  std::int64_t missing_modules() const { return missing_modules_; }

  /// A tensor of the folder. Valid as long as the ModelFolder.
  struct Tensor {
    const safetensors::Reader* file;
    const safetensors::Entry* entry;
    /// Factors of a tensor in FP8, see block_scales.h; null for other types.
    const safetensors::Reader* scales_file = nullptr;
    const safetensors::Entry* scales = nullptr;
    WeightBlocks blocks = {};
    /// Reads the tensor as f32. `values` must have as many elements as the tensor. Throws a bad_input Error for NaN and
    /// infinity.
    void read(std::span<float> values) const;
    /// Reads elements [first, first + values.size()) of the flat tensor in the same way.
    void read(std::int64_t first, std::span<float> values) const;
  };
  /// Reads all weights, to check them. Throws a bad_input Error that names the first tensor that cannot be read or is
  /// not finite.
  void require_sound() const;
  /// All tensors, keyed by their names in transformers. Factors of other tensors are not among them.
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

 private:
  void open_files();
  void open_file(const std::filesystem::path& file);
  /// Gives each tensor in FP8 its factors. Throws a bad_input Error that names a tensor without matching factors.
  void find_scales();

  std::filesystem::path path_;
  const Architecture* architecture_ = nullptr;
  Config config_;
  std::int64_t missing_modules_ = 0;
  std::optional<WeightBlocks> blocks_;  // of weights in FP8; none if there are no such weights
  std::vector<std::unique_ptr<safetensors::Reader>> files_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace lyceum::hugging_face
