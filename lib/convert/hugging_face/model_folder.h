#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convert/hugging_face/architecture.h"
#include "io/files/safetensors.h"

namespace lyceum::hugging_face {

constexpr const char *config_name = "config.json", *weights_name = "model.safetensors",
                     *index_name = "model.safetensors.index.json";

/// True if there is such a file. Throws a bad_input Error if the system cannot tell, or if it is a link to nothing, as
/// incomplete downloads leave them.
bool has_file(const std::filesystem::path& file);

/// A JSON object in a file. Throws a bad_input Error that names the file.
Json read_object(const std::filesystem::path& file);

/// A model in a folder, as transformers saves it: config.json, and model.safetensors, or else several such files that
/// model.safetensors.index.json names.
class ModelFolder {
 public:
  /// Reads all but the weights' values. Throws bad_input Errors that name the file.
  explicit ModelFolder(std::filesystem::path folder);

  const std::filesystem::path& path() const { return path_; }
  const Architecture& architecture() const { return *architecture_; }
  /// As config_of().
  const Config& config() const { return config_; }

  struct Tensor {
    const safetensors::Reader* file;
    const safetensors::Entry* entry;
    /// Fills `values`. Throws a bad_input Error for NaN and infinity.
    void read(std::span<float> values) const;
  };
  /// Reads all weights. Throws a bad_input Error that names the first tensor that cannot be read or is not finite.
  void require_sound() const;
  /// By name.
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

 private:
  void open_files();
  void open_file(const std::filesystem::path& file);

  std::filesystem::path path_;
  const Architecture* architecture_ = nullptr;
  Config config_;
  std::vector<std::unique_ptr<safetensors::Reader>> files_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace lyceum::hugging_face
