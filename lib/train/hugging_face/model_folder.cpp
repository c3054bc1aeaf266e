#include "train/hugging_face/model_folder.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"
#include "io/files/whole_file.h"
#include "io/text/json.h"
#include "io/text/utf8.h"
#include "train/hugging_face/fields.h"

namespace lyceum::hugging_face {

namespace fs = std::filesystem;

namespace {

/// Calls f; a bad_input Error names the file.
template <class F>
decltype(auto) told_of(const fs::path& file, F&& f) {
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

/// Files that the index has tensors in.
std::set<std::string> indexed_files(const Json& index) {
  std::set<std::string> names;
  require_input(value_of(index, "weight_map").is_object(), "it has no weight_map");
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    require_input(!name.empty() && name.find('/') == std::string::npos, "{} is in {}, which is not a file next to it",
                  excerpt(tensor), excerpt(json_text(file)));
    names.insert(name);
  }
  return names;
}

}  // namespace

Json read_object(const fs::path& file) {
  return told_of(file, [&] {
    const std::string text = read_whole_file(file);
    require_shallow(text);
    Json json = Json::parse(text);
    require_input(json.is_object(), "it is not a JSON object");
    return json;
  });
}

ModelFolder::ModelFolder(fs::path folder) : path_(std::move(folder)) {
  const fs::path file = path_ / config_name;
  require_input(fs::is_regular_file(file), "{} does not exist: name the folder of a model that transformers saved",
                file.string());
  const Json json = read_object(file);
  told_of(file, [&] {
    architecture_ = &architecture_of(json);
    config_ = config_of(*architecture_, json);
  });
  open_files();
}

void ModelFolder::open_files() {
  std::set<std::string> names{weights_name};
  const fs::path index = path_ / index_name;
  if (fs::exists(index)) {
    const Json json = read_object(index);
    names = told_of(index, [&] { return indexed_files(json); });
  } else {
    require_input(fs::exists(path_ / weights_name),
                  "{} has neither {} nor {}: save the model with transformers' save_pretrained, which writes them",
                  path_.string(), weights_name, index_name);
  }
  for (const std::string& name : names) {
    files_.push_back(std::make_unique<safetensors::Reader>(path_ / name));
    for (const safetensors::Entry& entry : files_.back()->tensors()) {
      const bool fresh = tensors_.try_emplace(entry.name, Tensor{files_.back().get(), &entry}).second;
      require_input(fresh, "{} has the tensor {}, which another file also has", files_.back()->path(),
                    excerpt(entry.name));
    }
  }
}

}  // namespace lyceum::hugging_face
