#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>

#include "core/copy.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/manifest.h"
#include "io/files/atomic_file.h"
#include "io/files/hdf5.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// Names become paths in HDF5 files, and a box is appended to them in brackets.
void check_name(const std::string& name) {
  const auto bad = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '[' || c == ']' || c == 0x7f; };
  require(!name.empty() && std::none_of(name.begin(), name.end(), bad),
          "tensor name \"{}\" is empty or contains brackets or control characters", name);
  const std::string padded = "/" + name + "/";
  for (const char* part : {"//", "/./", "/../"}) {
    require(padded.find(part) == std::string::npos, "tensor name \"{}\" has an empty or dotted part", name);
  }
}

std::vector<std::int64_t> numbers(const Shape& shape) { return {shape.extents().begin(), shape.extents().end()}; }
Shape shape_told(const Json& json) {
  return Shape(std::span<const std::int64_t>(json.get<std::vector<std::int64_t>>()));
}

/// A rank's pieces as text for the rank that plans.
std::string describe(const CheckpointHeader& header, std::span<const CheckpointPiece> pieces) {
  require(header.step >= 0, "step {} is negative", header.step);
  Json list = Json::array();
  for (const CheckpointPiece& piece : pieces) {
    check_name(piece.name);
    require(piece.shape.rank() > 0, "tensor {} has no dimensions: save it as [1]", piece.name);
    require(piece.values || piece.make || piece.box.extent.size() == 0, "tensor {} has no values", piece.name);
    list.push_back({piece.name, numbers(piece.shape), numbers(piece.box.offset), numbers(piece.box.extent)});
  }
  return Json{{"step", header.step}, {"run_uuid", header.run_uuid}, {"pieces", std::move(list)}}.dump();
}

/// All ranks' pieces by tensor. Throws when their shapes differ or they do not cover every tensor exactly once.
std::vector<StoredTensor> plan(const CheckpointHeader& header, const std::vector<std::string>& descriptions) {
  std::map<std::string, StoredTensor> tensors;
  for (std::size_t rank = 0; rank < descriptions.size(); ++rank) {
    const Json description = Json::parse(descriptions[rank]);
    require(description.at("step") == header.step && description.at("run_uuid") == header.run_uuid,
            "rank {} saves a different step or run than rank 0", rank);
    for (const Json& piece : description.at("pieces")) {
      const std::string name = piece.at(0);
      const Shape shape = shape_told(piece.at(1));
      const Box box{shape_told(piece.at(2)), shape_told(piece.at(3))};
      StoredTensor& tensor = tensors.try_emplace(name, StoredTensor{name, shape, {}}).first->second;
      require(tensor.shape == shape, "tensor {} is {} on rank {} and {} on another", name, shape, rank, tensor.shape);
      if (inside(box, shape) && box.extent.size() == 0) continue;  // a rank with nothing of it
      tensor.boxes.push_back({rank, dataset_name(name, shape, box), box});
    }
  }
  std::vector<StoredTensor> result;
  std::vector<Box> boxes;
  for (auto& [name, tensor] : tensors) {
    for (std::size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
      require(!tensors.contains(name.substr(0, slash)), "tensor {} is inside tensor {}", name, name.substr(0, slash));
    }
    boxes.clear();
    for (const StoredBox& stored : tensor.boxes) boxes.push_back(stored.box);
    const auto owner = [&](std::size_t i) { return fmt::format("rank {}", tensor.boxes[i].file); };
    const std::string problem = coverage_problem(name, tensor.shape, boxes, owner);
    require(problem.empty(), "{}", problem);
    result.push_back(std::move(tensor));
  }
  return result;
}

/// Throws if there is a checkpoint that this build cannot read: it must not be replaced.
void require_known_format(const fs::path& directory) {
  if (!fs::exists(directory / manifest_name)) return;
  try {
    read_manifest(directory);
  } catch (const UnknownFormat&) {
    throw;
  } catch (const Error&) {
    // Damaged: a new one is better.
  }
}

void write_shard(const fs::path& path, std::span<const CheckpointPiece> pieces) {
  hdf5::File file = hdf5::File::create(path);
  std::vector<float> copied;
  const auto room_for = [&](const CheckpointPiece& piece) {
    copied.resize(static_cast<std::size_t>(piece.box.extent.size()));
    return copied.data();
  };
  for (const CheckpointPiece& piece : pieces) {
    if (piece.box.extent.size() == 0) continue;
    const float* values = piece.values;
    if (!values) {
      values = room_for(piece);
      piece.make(copied);
    } else if (piece.stream && asynchronous(*piece.stream)) {
      values = room_for(piece);
      copy_to_host(*piece.stream, copied.data(), piece.values, copied.size() * sizeof(float));
    }
    const std::string name = dataset_name(piece.name, piece.shape, piece.box);
    file.create_dataset(name, DType::f32, piece.box.extent).write(values);
  }
  file.close();
  sync_path(path);
}

/// Every logical tensor whole, as a view of the shards next to it.
void write_index(const fs::path& path, const Manifest& manifest) {
  hdf5::File file = hdf5::File::create(path);
  file.set("format", std::string(checkpoint_format));
  file.set("format_version", checkpoint_format_version);
  file.set("run_uuid", manifest.header.run_uuid);
  file.set("step", manifest.header.step);
  file.set("mesh", manifest.header.mesh);
  if (const auto& job = manifest.header.job) {
    file.set("slurm_job_id", job->id);
    file.set("slurm_restart_count", static_cast<std::int64_t>(job->restarts));
    file.set("slurm_job_nodelist", job->nodes);
  }
  file.set("config", manifest.header.config);
  std::vector<hdf5::VirtualSource> sources;
  for (const StoredTensor& tensor : manifest.tensors) {
    sources.clear();
    for (const StoredBox& stored : tensor.boxes) {
      sources.push_back({manifest.files[stored.file].name, stored.dataset, stored.box});
    }
    if (sources.empty()) {
      file.create_dataset(tensor.name, DType::f32, tensor.shape);
    } else {
      file.create_virtual(tensor.name, DType::f32, tensor.shape, sources);
    }
  }
  file.close();
  sync_path(path);
}

/// One collective save. Each phase is done by every rank, or by rank 0 for all, and ends with all ranks knowing whether
/// all came through; so no rank continues alone, and none waits for one that gave up.
class Writer {
 public:
  Writer(const ProcessGroup& group, const fs::path& root, const CheckpointHeader& header,
         std::span<const CheckpointPiece> pieces, const CheckpointProbe& probe)
      : group_(group),
        root_(root),
        name_(checkpoint_name(header.step)),
        partial_(root / (name_ + ".partial")),
        pieces_(pieces),
        probe_(probe) {
    manifest_.header = header;
  }

  /// What went wrong after the checkpoint was published, or empty.
  std::string run() {
    const auto descriptions = all_ranks("plan", [&] { return describe(manifest_.header, pieces_); });
    rank_zero("prepare", [&] { prepare(descriptions); });
    all_ranks("shard", [&] {
      write_shard(partial_ / shard_name(group_.rank()), pieces_);
      return std::string();
    });
    const auto digests = all_ranks("digest", [&] {
      const FileDigest digest = digest_of_file(partial_ / shard_name(group_.rank()));
      return fmt::format("{} {}", digest.bytes, digest.sha256);
    });
    rank_zero("manifest", [&] { write_manifest(digests); });
    rank_zero("publish", [&] { publish(); });
    return group_.broadcast(complaint_, 0);
  }

 private:
  /// Every rank's answer, or the same Error everywhere.
  std::vector<std::string> all_ranks(std::string_view phase, const std::function<std::string()>& action) {
    std::string answer;
    try {
      if (probe_) probe_(phase);
      answer = '+' + action();
    } catch (const std::exception& error) {
      answer = std::string("-") + error.what();
    }
    std::vector<std::string> answers = group_.all_gather(answer);
    const auto failed = std::find_if(answers.begin(), answers.end(), [](const auto& a) { return a.at(0) == '-'; });
    if (failed != answers.end()) give_up(static_cast<int>(failed - answers.begin()), failed->substr(1));
    for (std::string& text : answers) text.erase(0, 1);
    return answers;
  }

  void rank_zero(std::string_view phase, const std::function<void()>& action) {
    std::string failure;
    if (group_.rank() == 0) {
      try {
        if (probe_) probe_(phase);
        action();
      } catch (const std::exception& error) {
        failure = std::string("-") + error.what();
      }
    }
    failure = group_.broadcast(failure, 0);
    if (!failure.empty()) give_up(0, failure.substr(1));
  }

  [[noreturn]] void give_up(int rank, std::string cause) {
    if (group_.rank() == 0) {
      std::error_code ignored;
      fs::remove_all(partial_, ignored);
      fs::remove(root_ / "LATEST.partial", ignored);
    }
    std::replace(cause.begin(), cause.end(), '\n', ' ');
    group_.barrier();  // the space is free again when the error is thrown, on every rank
    fail(ExitCode::failed, "checkpoint {} was not saved: rank {}: {} (earlier checkpoints are untouched)", name_, rank,
         cause);
  }

  void prepare(const std::vector<std::string>& descriptions) {
    manifest_.tensors = plan(manifest_.header, descriptions);
    require_known_format(root_ / name_);
    make_directories(root_);
    fs::remove_all(partial_);
    fs::create_directory(partial_);
  }

  void write_manifest(const std::vector<std::string>& digests) {
    for (std::size_t rank = 0; rank < digests.size(); ++rank) {
      const std::string& digest = digests[rank];
      const std::size_t space = digest.find(' ');
      manifest_.files.push_back(
          {shard_name(static_cast<int>(rank)), {std::stoll(digest.substr(0, space)), digest.substr(space + 1)}});
    }
    write_index(partial_ / index_name, manifest_);
    manifest_.files.push_back({std::string(index_name), digest_of_file(partial_ / index_name)});
    if (const std::string& tokenizer = manifest_.header.tokenizer; !tokenizer.empty()) {
      write_file(partial_ / tokenizer_name, tokenizer);
      manifest_.files.push_back(
          {std::string(tokenizer_name), {static_cast<std::int64_t>(tokenizer.size()), sha256(tokenizer)}});
    }
    write_file(partial_ / manifest_name, manifest_text(manifest_));
    write_file(root_ / "LATEST.partial", name_ + "\n");  // here, so that publishing needs no space
    sync_path(partial_);
  }

  /// Once the directory has its name the checkpoint is saved, whatever becomes of the rest.
  void publish() {
    const fs::path replaced = publish_directory(partial_, root_ / name_);
    try {
      if (probe_) probe_("latest");
      sync_path(root_);
      rename_path(root_ / "LATEST.partial", root_ / "LATEST");
      sync_path(root_);
      if (!replaced.empty()) fs::remove_all(replaced);
    } catch (const std::exception& error) {
      complaint_ = fmt::format("checkpoint {} is saved, but: {} (the next start repairs this)", name_, error.what());
    }
  }

  const ProcessGroup& group_;
  fs::path root_;
  std::string name_;
  fs::path partial_;
  std::span<const CheckpointPiece> pieces_;
  const CheckpointProbe& probe_;
  Manifest manifest_;      // files and tensors: on rank 0
  std::string complaint_;  // of rank 0
};

}  // namespace

std::string write_checkpoint(const ProcessGroup& group, const std::filesystem::path& root,
                             const CheckpointHeader& header, std::span<const CheckpointPiece> pieces,
                             const CheckpointProbe& probe) {
  return Writer(group, root, header, pieces, probe).run();
}

}  // namespace lyceum
