#include "io/checkpoint/manifest.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "io/checkpoint/tensor_text.h"
#include "io/files/input_file.h"
#include "io/text/json.h"
#include "io/text/json_stream.h"
#include "io/text/utf8.h"

namespace lyceum {
namespace {

using Json = nlohmann::json;

constexpr std::string_view digest_key = "\"manifest_sha256\": ";
constexpr std::int64_t most_steps = std::int64_t{1} << 53;
constexpr std::int64_t most_elements = std::int64_t{1} << 59;  // of a shard, so that sums cannot overflow

/// Throws a bad_input Error unless the boxes are inside their tensor and in some of the first `files` files.
void check_boxes(const StoredTensor& tensor, std::size_t files) {
  require_input(tensor.shape.rank() > 0, "tensor {} has no dimensions", tensor.name);
  for (const StoredSlice& stored : tensor.boxes) {
    require_input(stored.file < files, "tensor {} is in file {}, but there are only {}", tensor.name, stored.file,
                  files);
    require_input(inside(stored.box, tensor.shape), "a box of tensor {} {} extends outside of it", tensor.name,
                  tensor.shape.text());
    const std::int64_t first = stored.first.value_or(0);
    require_input(first >= 0 && first < most_elements, "a box of tensor {} begins at element {}", tensor.name, first);
  }
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

/// An open manifest.json. Its text is read in blocks.
class ManifestFile {
 public:
  explicit ManifestFile(const std::filesystem::path& path) : file_(path.string(), "is the checkpoint complete?") {}

  /// True if the text ends with the SHA-256 of all bytes before it. Reads the whole file.
  bool has_its_digest() {
    const std::uint64_t rest = digest_key.size() + 64 + std::string_view("\"\"\n}\n").size();
    if (file_.size() < rest) return false;
    std::string end(rest, '\0');
    file_.read_values(file_.size() - rest, std::span(end));
    Sha256 hash;
    rewind(file_.size() - rest);
    for (std::string_view block = next(); !block.empty(); block = next()) hash.update(std::as_bytes(std::span(block)));
    return end == fmt::format("{}\"{}\"\n}}\n", digest_key, hash.finish());
  }
  /// Makes next() begin at the first byte again, and end after `end` bytes.
  void rewind(std::uint64_t end) {
    at_ = 0;
    end_ = end;
  }
  void rewind() { rewind(file_.size()); }
  /// Returns the next block; an empty one at the end.
  std::string_view next() {
    block_.resize(std::min<std::uint64_t>(block_bytes, end_ - at_));
    file_.read_values(at_, std::span(block_));
    at_ += block_.size();
    return block_;
  }

 private:
  static constexpr std::uint64_t block_bytes = 1 << 16;

  InputFile file_;
  std::string block_;
  std::uint64_t at_ = 0, end_ = 0;
};

/// Reads a manifest member by member. Members may have any order, except that format and version come before files, and
/// these before tensors, as every version of Lyceum writes them.
class ManifestScan {
 public:
  /// `each` receives the tensors; if it is null, the scan ends before them.
  explicit ManifestScan(const std::function<void(StoredTensor&&)>& each) : each_(each) {}

  /// Throws as read_manifest() does, but the message does not name the file.
  Manifest scan(ManifestFile& file) {
    const bool intact = file.has_its_digest();
    std::exception_ptr problem;  // the first one of the contents
    file.rewind();
    const auto read = [&](std::string_view key, std::string_view value) {
      if (key == "tensors" && !each_) return false;
      try {
        take(std::string(key), value);
      } catch (const UnknownFormat&) {
        throw;
      } catch (const std::exception&) {
        problem = std::current_exception();
      }
      return !problem;
    };
    read_json_members([&] { return file.next(); },
                      {.divided = [&](std::string_view key) { return note_list(key); }, .each = read});
    require_known_format();
    require_input(intact, "it was changed after it was written (it differs from the SHA-256 at its end)");
    if (problem) std::rethrow_exception(problem);
    return finish();
  }

 private:
  /// True if the array `key` is one of lists_, which is then marked as seen.
  bool note_list(std::string_view key) {
    const auto list = lists_.find(key);
    if (list == lists_.end()) return false;
    list->second = true;
    return true;
  }

  void take(const std::string& key, std::string_view value) {
    const auto list = lists_.find(key);
    if (list == lists_.end()) {
      members_[key] = parse_json<Json>(value);
      return;
    }
    require_known_format();
    require_input(list->second, "its {} are not a list", key);
    if (key == "files") return add(file_of(parse_json<Json>(value)));
    add(parse_tensor(value));
  }

  void require_known_format() {
    if (known_) return;
    const auto require_known = [](bool known, const std::string& message) {
      if (!known) throw UnknownFormat(ExitCode::bad_input, message, std::source_location::current());
    };
    require_known(members_.at("format") == checkpoint_format, fmt::format("its format is not {}", checkpoint_format));
    const std::int64_t version = Exact(members_.at("format_version"));
    require_known(version >= 1 && version <= checkpoint_format_version,
                  fmt::format("unknown format_version {}, this program reads 1 to {}: use the version of lyceum that "
                              "wrote it",
                              version, checkpoint_format_version));
    known_ = true;
  }

  void add(StoredFile file) {
    require_input(file.digest.bytes >= 0 && !__builtin_add_overflow(bytes_, file.digest.bytes, &bytes_),
                  "file {} cannot have {} bytes", file.name, file.digest.bytes);
    manifest_.files.push_back(std::move(file));
  }

  /// Throws a bad_input Error unless the boxes are possible and the files are large enough for all tensors. Later sums
  /// of sizes therefore cannot overflow.
  void add(StoredTensor tensor) {
    check_boxes(tensor, manifest_.files.size());
    const auto element = static_cast<std::int64_t>(size_of(tensor.type));
    require_input(tensor.shape.size() <= bytes_ / element, "its files are too small for tensor {} {}", tensor.name,
                  tensor.shape.text());
    bytes_ -= tensor.shape.size() * element;
    each_(std::move(tensor));
  }

  Manifest finish() {
    for (const auto& [key, seen] : lists_) require_input(seen, "it has no list of {}", key);
    manifest_.header = {.run_uuid = members_.at("run_uuid"),
                        .step = Exact(members_.at("step")),
                        .mesh = members_.at("mesh"),
                        .config = members_.at("config"),
                        .trainer_state = members_.at("trainer_state"),
                        .job = job_of(members_.value("job", Json())),
                        .unsound = members_.value("unsound", ""),
                        .timed = members_.value("timed", false)};
    require_input(manifest_.header.step >= 0 && manifest_.header.step < most_steps, "step {} is out of range",
                  manifest_.header.step);
    return std::move(manifest_);
  }

  const std::function<void(StoredTensor&&)>& each_;
  Json members_ = Json::object();                                                         // all except these lists
  std::map<std::string, bool, std::less<>> lists_{{"files", false}, {"tensors", false}};  // true: an array was seen
  Manifest manifest_;
  bool known_ = false;      // format and version were found to be known
  std::int64_t bytes_ = 0;  // of all files, less those of the tensors so far
};

/// Reads manifest.json with ManifestScan. Throws as read_manifest() does.
Manifest scan_file(const std::filesystem::path& directory, const std::function<void(StoredTensor&&)>& each) {
  const std::filesystem::path path = directory / manifest_name;
  require_input(std::filesystem::is_regular_file(path), "{}: missing, so the checkpoint is incomplete", path.string());
  try {
    ManifestFile file(path);
    return ManifestScan(each).scan(file);
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

}  // namespace

std::int64_t format_version_of(std::span<const StoredTensor> tensors) {
  std::int64_t version = 1;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.type != DType::f32) version = std::max<std::int64_t>(version, 2);
    if (std::ranges::any_of(tensor.boxes, [](const StoredSlice& stored) { return stored.first.has_value(); })) return 3;
  }
  return version;
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
    text += separator;
    append_json(text, tensor);
    separator = ",\n";
  }
  text += "\n],\n";
  return fmt::format("{}{}\"{}\"\n}}\n", text, digest_key, sha256(text));
}

Manifest scan_manifest(const std::filesystem::path& directory, const std::function<void(StoredTensor&&)>& each) {
  return scan_file(directory, each);
}

Manifest read_manifest_head(const std::filesystem::path& directory) { return scan_file(directory, nullptr); }

Manifest read_manifest(const std::filesystem::path& directory) {
  std::vector<StoredTensor> tensors;
  Manifest manifest = scan_file(directory, [&](StoredTensor&& tensor) { tensors.push_back(std::move(tensor)); });
  std::ranges::sort(tensors, {}, &StoredTensor::name);
  const auto twice = std::ranges::adjacent_find(tensors, {}, &StoredTensor::name);
  require_input(twice == tensors.end(), "{}: tensor {} occurs twice", (directory / manifest_name).string(),
                twice == tensors.end() ? "" : twice->name);
  manifest.tensors = std::move(tensors);
  return manifest;
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

std::string coverage_problem(const std::string& name, const Shape& shape, std::span<const StoredSlice> boxes,
                             std::span<const StoredFile> files) {
  std::vector<Box> places;
  for (const StoredSlice& stored : boxes) places.push_back(stored.box);
  return coverage_problem(name, shape, places, [&](std::size_t i) { return files[boxes[i].file].name; });
}

std::string coverage_problem(const Manifest& manifest) {
  for (const StoredTensor& tensor : manifest.tensors) {
    std::string problem = coverage_problem(tensor.name, tensor.shape, tensor.boxes, manifest.files);
    if (!problem.empty()) return problem;
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
