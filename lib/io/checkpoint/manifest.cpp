#include "io/checkpoint/manifest.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>

#include "io/files/whole_file.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

namespace lyceum {
namespace {

using Json = nlohmann::json;

constexpr std::string_view digest_key = "\"manifest_sha256\": ";
constexpr std::int64_t most_steps = std::int64_t{1} << 53;

Json json_of(const Shape& shape) {
  return Json(std::vector<std::int64_t>(shape.extents().begin(), shape.extents().end()));
}

Shape shape_of(const Json& json) {
  const auto extents = exact_value<std::vector<std::int64_t>>(json);
  require_input(extents.size() <= Shape::max_rank, "a shape has {} dimensions, at most {} are supported",
                extents.size(), Shape::max_rank);
  for (const std::int64_t extent : extents) require_input(extent >= 0, "a shape has the negative extent {}", extent);
  return Shape(std::span(extents));
}

Json json_of(const StoredTensor& tensor) {
  Json boxes = Json::array();
  for (const StoredBox& stored : tensor.boxes) {
    boxes.push_back({stored.file, stored.dataset, json_of(stored.box.offset), json_of(stored.box.extent)});
  }
  Json json{{"name", tensor.name}, {"shape", json_of(tensor.shape)}, {"boxes", std::move(boxes)}};
  if (tensor.type != DType::f32) json["type"] = name_of(tensor.type);
  return json;
}

DType type_of(const Json& json) {
  const auto name = json.value("type", std::string(name_of(DType::f32)));
  for (const DType type : {DType::f32, DType::bf16}) {
    if (name_of(type) == name) return type;
  }
  fail(ExitCode::bad_input, "tensor {} has the unknown type {}", json.at("name").get<std::string>(), excerpt(name, 20));
}

StoredTensor tensor_of(const Json& json, std::size_t files) {
  StoredTensor tensor{.name = json.at("name"), .shape = shape_of(json.at("shape")), .boxes = {}, .type = type_of(json)};
  for (const Json& entry : json.at("boxes")) {
    StoredBox stored{
        .file = Exact(entry.at(0)), .dataset = entry.at(1), .box = {shape_of(entry.at(2)), shape_of(entry.at(3))}};
    require_input(stored.file < files, "tensor {} is in file {}, but there are only {}", tensor.name, stored.file,
                  files);
    require_input(inside(stored.box, tensor.shape), "a box of tensor {} {} extends outside of it", tensor.name,
                  tensor.shape.text());
    tensor.boxes.push_back(std::move(stored));
  }
  return tensor;
}

Json json_of(const std::optional<BatchJob>& job) {
  if (!job) return nullptr;
  return {{"cluster", job->cluster}, {"id", job->id},       {"name", job->name},        {"partition", job->partition},
          {"user", job->user},       {"nodes", job->nodes}, {"restarts", job->restarts}};
}

std::optional<BatchJob> job_of(const Json& json) {
  if (json.is_null()) return {};
  return BatchJob{.cluster = json.at("cluster"),
                  .id = json.at("id"),
                  .name = json.at("name"),
                  .partition = json.at("partition"),
                  .user = json.at("user"),
                  .nodes = json.at("nodes"),
                  .restarts = Exact(json.at("restarts"))};
}

StoredFile file_of(const Json& json) {
  StoredFile file{.name = json.at("name"), .digest = {.bytes = Exact(json.at("bytes")), .sha256 = json.at("sha256")}};
  require_input(file.name.find('/') == std::string::npos, "file {} is in another directory", file.name);
  return file;
}

/// Throws a bad_input Error unless the files are large enough for all tensors. Later sums of sizes therefore cannot
/// overflow.
void check_sizes(const Manifest& manifest) {
  std::int64_t bytes = 0;
  for (const StoredFile& file : manifest.files) {
    require_input(file.digest.bytes >= 0 && !__builtin_add_overflow(bytes, file.digest.bytes, &bytes),
                  "file {} cannot have {} bytes", file.name, file.digest.bytes);
  }
  for (const StoredTensor& tensor : manifest.tensors) {
    const auto element = static_cast<std::int64_t>(size_of(tensor.type));
    require_input(tensor.shape.size() <= bytes / element, "its files are too small for tensor {} {}", tensor.name,
                  tensor.shape.text());
    bytes -= tensor.shape.size() * element;
  }
}

/// Throws a bad_input Error unless `text` ends with the SHA-256 of all bytes before it.
void check_digest(std::string_view text) {
  const std::size_t at = text.rfind(digest_key);
  require_input(at != std::string_view::npos &&
                    text.substr(at + digest_key.size()) == fmt::format("\"{}\"\n}}\n", sha256(text.substr(0, at))),
                "it was changed after it was written (it differs from the SHA-256 at its end)");
}

Manifest parse(std::string_view text) {
  require_shallow(text);
  const Json json = parse_json<Json>(text);
  const auto require_known = [](bool known, const std::string& message) {
    if (!known) throw UnknownFormat(ExitCode::bad_input, message, std::source_location::current());
  };
  require_known(json.at("format") == checkpoint_format, fmt::format("its format is not {}", checkpoint_format));
  const std::int64_t version = Exact(json.at("format_version"));
  require_known(version >= 1 && version <= checkpoint_format_version,
                fmt::format("unknown format_version {}, this program reads 1 to {}: use the version of lyceum that "
                            "wrote it",
                            version, checkpoint_format_version));
  check_digest(text);
  Manifest manifest;
  manifest.header = {.run_uuid = json.at("run_uuid"),
                     .step = Exact(json.at("step")),
                     .mesh = json.at("mesh"),
                     .config = json.at("config"),
                     .trainer_state = json.at("trainer_state"),
                     .job = job_of(json.value("job", Json())),
                     .unsound = json.value("unsound", ""),
                     .timed = json.value("timed", false)};
  require_input(manifest.header.step >= 0 && manifest.header.step < most_steps, "step {} is out of range",
                manifest.header.step);
  for (const Json& file : json.at("files")) manifest.files.push_back(file_of(file));
  for (const Json& tensor : json.at("tensors")) manifest.tensors.push_back(tensor_of(tensor, manifest.files.size()));
  const auto by_name = [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; };
  std::sort(manifest.tensors.begin(), manifest.tensors.end(), by_name);
  for (std::size_t i = 1; i < manifest.tensors.size(); ++i) {
    require_input(by_name(manifest.tensors[i - 1], manifest.tensors[i]), "tensor {} occurs twice",
                  manifest.tensors[i].name);
  }
  check_sizes(manifest);
  return manifest;
}

}  // namespace

std::int64_t format_version_of(std::span<const StoredTensor> tensors) {
  return std::ranges::all_of(tensors, [](const StoredTensor& tensor) { return tensor.type == DType::f32; }) ? 1 : 2;
}

std::string manifest_text(const Manifest& manifest) {
  const CheckpointHeader& header = manifest.header;
  std::string text = fmt::format(
      "{{\n\"format\": \"{}\",\n\"format_version\": {},\n\"run_uuid\": {},\n\"step\": {},\n\"mesh\": {},\n"
      "\"sound\": {},\n\"unsound\": {},\n\"timed\": {},\n\"job\": {},\n\"config\": {},\n\"trainer_state\": "
      "{},\n\"files\": [",
      checkpoint_format, format_version_of(manifest.tensors), json_text(Json(header.run_uuid)), header.step,
      json_text(Json(header.mesh)), header.unsound.empty(), json_text(Json(header.unsound)), header.timed,
      json_text(json_of(header.job)), json_text(Json(header.config)), json_text(Json(header.trainer_state)));
  const char* separator = "\n";
  for (const StoredFile& file : manifest.files) {
    const Json json = {{"name", file.name}, {"bytes", file.digest.bytes}, {"sha256", file.digest.sha256}};
    text += separator + json_text(json);
    separator = ",\n";
  }
  text += "\n],\n\"tensors\": [";
  separator = "\n";
  for (const StoredTensor& tensor : manifest.tensors) {
    text += separator + json_text(json_of(tensor));
    separator = ",\n";
  }
  text += "\n],\n";
  return fmt::format("{}{}\"{}\"\n}}\n", text, digest_key, sha256(text));
}

Manifest read_manifest(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / manifest_name;
  require_input(std::filesystem::is_regular_file(path), "{}: missing, so the checkpoint is incomplete", path.string());
  try {
    return parse(read_whole_file(path));
  } catch (const Json::exception& error) {
    fail(ExitCode::bad_input, "{}: damaged: {}", path.string(), excerpt(error.what(), 200));
  } catch (const UnknownFormat& error) {
    throw UnknownFormat(error.code(), fmt::format("{}: {}", path.string(), error.what()), error.where());
  } catch (const Error& error) {
    const std::string reason = error.what();
    if (reason.starts_with(path.string())) throw;
    fail(ExitCode::bad_input, "{}: {}", path.string(), reason);
  }
}

std::string shard_name(int rank) { return fmt::format("rank-{:05}.h5", rank); }

std::string dataset_name(const std::string& name, const Shape& shape, const Box& box) {
  return box == Box::whole(shape) ? name : name + box.text();
}

std::string coverage_problem(const std::string& name, const Shape& shape, std::span<const Box> boxes,
                             const std::function<std::string(std::size_t)>& owner) {
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    if (!inside(boxes[i], shape)) {
      return fmt::format("tensor {} {}: box {} of {} is outside of it", name, shape.text(), boxes[i].text(), owner(i));
    }
  }
  if (const auto pair = find_overlap(boxes)) {
    const auto [a, b] = *pair;
    return fmt::format("tensor {} {}: box {} of {} and box {} of {} overlap", name, shape.text(), boxes[a].text(),
                       owner(a), boxes[b].text(), owner(b));
  }
  std::int64_t covered = 0;
  for (const Box& box : boxes) covered += box.extent.size();
  if (covered != shape.size()) {
    return fmt::format("tensor {} {}: {} of {} elements are in no box", name, shape.text(), shape.size() - covered,
                       shape.size());
  }
  return {};
}

std::string coverage_problem(const Manifest& manifest) {
  std::vector<Box> boxes;
  for (const StoredTensor& tensor : manifest.tensors) {
    boxes.clear();
    for (const StoredBox& stored : tensor.boxes) boxes.push_back(stored.box);
    const auto owner = [&](std::size_t i) { return manifest.files[tensor.boxes[i].file].name; };
    if (std::string problem = coverage_problem(tensor.name, tensor.shape, boxes, owner); !problem.empty())
      return problem;
  }
  return {};
}

std::string file_problem(const std::filesystem::path& directory, const StoredFile& file, bool sizes_only) {
  const std::filesystem::path path = directory / file.name;
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) return fmt::format("{}: missing", path.string());
  if (static_cast<std::int64_t>(bytes) != file.digest.bytes) {
    return fmt::format("{}: {} bytes instead of {}: truncated or changed", path.string(), bytes, file.digest.bytes);
  }
  if (sizes_only) return {};
  try {
    if (digest_of_file(path) == file.digest) return {};
  } catch (const Error& unreadable) {
    return unreadable.what();
  }
  return fmt::format("{}: damaged: its SHA-256 differs from the one in {}", path.string(), manifest_name);
}

}  // namespace lyceum
