#include "convert/hugging_face/model_folder.h"

#include <boost/algorithm/string/join.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "config/check.h"
#include "convert/hugging_face/fields.h"
#include "convert/hugging_face/modules.h"
#include "core/error.h"
#include "io/files/git_lfs.h"
#include "io/files/system_reason.h"
#include "io/files/whole_file.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

namespace lyceum::hugging_face {

namespace fs = std::filesystem;

namespace {

/// Calls f and returns its result. Rethrows any exception as a bad_input Error that names the file.
template <class F>
decltype(auto) name_file_in_errors(const fs::path& file, F&& f) {
  try {
    return f();
  } catch (const std::exception& problem) {
    const std::string text = problem.what(), name = file.string();
    fail(ExitCode::bad_input, "{}{}", text.starts_with(name) ? "" : name + ": ", excerpt(text, 400));
  }
}

const Architecture& architecture_of(const Json& json) {
  const Json& type = value_of(json, "model_type");
  require_input(type.is_string(), "model_type is missing");
  std::string known;
  for (const Architecture& each : architectures()) known += (known.empty() ? "" : ", ") + std::string(each.type);
  const Architecture* const found = find_architecture(type.get<std::string>());
  require_input(found, "model_type = {}: must be one of {}", excerpt(json_text(type)), known);
  return *found;
}

/// Returns the file of each tensor, keyed by the tensor's name.
std::map<std::string, std::string> files_of_tensors(const Json& index) {
  std::map<std::string, std::string> files;
  require_input(value_of(index, "weight_map").is_object(), "it has no weight_map");
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    require_input(!name.empty() && name.find('/') == std::string::npos,
                  "it lists {} in {}, which is not a file of the same folder", excerpt(tensor),
                  excerpt(json_text(file)));
    files[tensor] = name;
  }
  return files;
}

}  // namespace

bool has_file(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (status.type() != fs::file_type::not_found) {
    require_input(status.type() != fs::file_type::none && !error, "{} cannot be read: {}", file.string(),
                  system_reason(error));
    return true;
  }
  require_input(!fs::is_symlink(fs::symlink_status(file, error)),
                "{} is a link to a file that does not exist: download the model again", file.string());
  return false;
}

Json read_object(const fs::path& file) {
  return name_file_in_errors(file, [&] {
    const std::string text = read_whole_file(file);
    require_input(!is_lfs_pointer(text), "it is {}", lfs_pointer_advice);
    require_shallow(text);
    Json json = Json::parse(text);
    require_input(json.is_object(), "it is not a JSON object");
    return json;
  });
}

ModelFolder::ModelFolder(fs::path folder) : path_(std::move(folder)) {
  const fs::path file = path_ / config_name;
  require_input(has_file(file), "{} does not exist: name the folder of a model that transformers saved", file.string());
  const fs::path adapter = path_ / "adapter_config.json";
  require_input(
      !has_file(adapter),
      "{}: the folder holds an adapter of another model: merge it (merge_and_unload) and save the whole model",
      adapter.string());
  Json json = read_object(file);
  name_file_in_errors(file, [&] {
    blocks_ = weight_blocks_of(json);
    if (blocks_) json.erase("quantization_config");
    architecture_ = &architecture_of(json);
    config_ = config_of(*architecture_, json);
    const std::vector<std::string> wrong = problems(config_, 1);
    require_input(wrong.empty(), "the model that it describes is impossible: {}", boost::join(wrong, "; "));
  });
  open_files();
  find_scales();
  const auto of_module = [&](const auto& tensor) {
    return is_of_module(config_.model, config_.mtp.depth, tensor.first);
  };
  if (std::ranges::none_of(tensors_, of_module)) missing_modules_ = std::exchange(config_.mtp.depth, 0);
}

void ModelFolder::Tensor::read(std::span<float> values) const {
  require(std::ssize(values) == entry->shape.size(), "memory for {} values does not fit {} {}", values.size(),
          entry->name, entry->shape);
  read(0, values);
}

void ModelFolder::Tensor::read(std::int64_t first, std::span<float> values) const {
  file->read(*entry, first, values);
  if (scales) {
    std::vector<float> factors(static_cast<std::size_t>(scales->shape.size()));
    scales_file->read(*scales, factors);
    apply_scales(blocks, entry->shape, factors, first, values);
  }
  const auto wrong = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  if (wrong == values.end()) return;
  const std::string value = std::isnan(*wrong) ? "NaN" : "infinite";
  fail(ExitCode::bad_input, "{}: {} is not finite: element {} is {}", file->path(), entry->name,
       first + (wrong - values.begin()), value);
}

void ModelFolder::require_sound() const {
  std::vector<float> values;
  for (const auto& [name, tensor] : tensors_) {
    values.resize(static_cast<std::size_t>(tensor.entry->shape.size()));
    tensor.read(values);
  }
}

void ModelFolder::open_files() {
  const fs::path single = path_ / weights_name, index = path_ / index_name;
  if (has_file(single)) return open_file(single);
  require_input(has_file(index),
                "{} has neither {} nor {}: save the model with transformers' save_pretrained, which writes them",
                path_.string(), weights_name, index_name);
  const Json json = read_object(index);
  const std::map<std::string, std::string> files = name_file_in_errors(index, [&] { return files_of_tensors(json); });
  std::set<std::string> names;
  for (const auto& [tensor, file] : files) names.insert(file);
  for (const std::string& name : names) open_file(path_ / name);
  for (const auto& [tensor, file] : files) {
    const auto found = tensors_.find(tensor);
    require_input(found != tensors_.end() && fs::path(found->second.file->path()).filename() == file,
                  "{} has no tensor {}, although {} lists it there", (path_ / file).string(), excerpt(tensor),
                  index.string());
  }
  for (const auto& [name, tensor] : tensors_) {
    require_input(files.contains(name), "{} has the tensor {}, which {} does not name", tensor.file->path(),
                  excerpt(name), index.string());
  }
}

void ModelFolder::find_scales() {
  std::set<std::string> used;
  for (auto& [name, tensor] : tensors_) {
    if (tensor.entry->type != safetensors::Type::f8_e4m3) continue;
    const std::string file = tensor.file->path(), theirs = name + std::string(scales_suffix);
    require_input(blocks_.has_value(), "{}: {} has the type F8_E4M3, but {} has no quantization_config", file, name,
                  config_name);
    const auto found = tensors_.find(theirs);
    require_input(found != tensors_.end(), "{}: {} has the type F8_E4M3, but there is no tensor {}", file, name,
                  theirs);
    const safetensors::Entry& scales = *found->second.entry;
    const Shape shape =
        name_file_in_errors(file + ": " + name, [&] { return scales_shape(*blocks_, tensor.entry->shape); });
    require_input(scales.shape == shape && scales.type != safetensors::Type::f8_e4m3,
                  "{}: {} is {} {}, but the factors of {} {} must be {}", found->second.file->path(), theirs,
                  safetensors::name_of(scales.type), scales.shape, name, tensor.entry->shape, shape);
    tensor.scales_file = found->second.file;
    tensor.scales = &scales;
    tensor.blocks = *blocks_;
    used.insert(theirs);
  }
  require_input(!blocks_ || !used.empty(), "{} has a quantization_config, but no tensor has the type F8_E4M3",
                (path_ / config_name).string());
  for (const std::string& name : used) tensors_.erase(name);
}

void ModelFolder::open_file(const fs::path& file) {
  files_.push_back(std::make_unique<safetensors::Reader>(file));
  for (const safetensors::Entry& entry : files_.back()->tensors()) {
    const bool fresh = tensors_.try_emplace(entry.name, Tensor{files_.back().get(), &entry}).second;
    require_input(fresh, "{} has the tensor {}, which another file also has", files_.back()->path(),
                  excerpt(entry.name));
  }
}

}  // namespace lyceum::hugging_face
