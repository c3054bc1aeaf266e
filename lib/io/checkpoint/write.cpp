#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <source_location>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>

#include "core/copy.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/manifest.h"
#include "io/files/atomic_file.h"
#include "io/files/hdf5.h"
#include "io/files/system_reason.h"
#include "io/text/json.h"
#include "parallel/comm/shared_work.h"

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
  return json_text(Json{{"step", header.step}, {"run_uuid", header.run_uuid}, {"pieces", std::move(list)}});
}

/// All ranks' pieces by tensor. Throws when their shapes differ or they do not cover every tensor exactly once.
std::vector<StoredTensor> plan(const CheckpointHeader& header, const std::vector<std::string>& descriptions) {
  std::map<std::string, StoredTensor> tensors;
  for (std::size_t rank = 0; rank < descriptions.size(); ++rank) {
    const Json description = parse_json<Json>(descriptions[rank]);
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

/// Whether the values lie in the host's memory as they are written.
bool on_host(const CheckpointPiece& piece) { return piece.values && !(piece.stream && asynchronous(*piece.stream)); }

void copy_values(const CheckpointPiece& piece, std::span<float> copy) {
  if (copy.empty()) return;
  if (!piece.values) {
    piece.make(copy);
  } else if (on_host(piece)) {
    std::memcpy(copy.data(), piece.values, copy.size_bytes());
  } else {
    copy_to_host(*piece.stream, copy.data(), piece.values, copy.size_bytes());
  }
}

std::size_t values_in(const CheckpointPiece& piece) { return static_cast<std::size_t>(piece.box.extent.size()); }

/// Pieces with values of their own in the host's memory.
struct HostCopy {
  explicit HostCopy(std::span<const CheckpointPiece> from) {
    std::size_t count = 0;
    for (const CheckpointPiece& piece : from) count += values_in(piece);
    try {
      values = std::make_unique_for_overwrite<float[]>(count);
    } catch (const std::bad_alloc&) {
      fail(ExitCode::failed, "no memory for a copy of {} bytes: set checkpoint.background = false",
           count * sizeof(float));
    }
    std::span<float> rest(values.get(), count);
    for (const CheckpointPiece& piece : from) {
      const std::span<float> copy = rest.first(values_in(piece));
      copy_values(piece, copy);
      pieces.push_back({.name = piece.name, .shape = piece.shape, .box = piece.box, .values = copy.data()});
      rest = rest.subspan(copy.size());
    }
  }

  std::unique_ptr<float[]> values;
  std::vector<CheckpointPiece> pieces;
};

/// `before_each` is called before the values of each piece are written, by the thread that writes them.
void write_shard(const fs::path& path, std::span<const CheckpointPiece> pieces, const std::stop_token& stop,
                 const RunOnFiles& run, const std::function<void()>& before_each) {
  std::optional<hdf5::File> file;
  run([&] { file.emplace(hdf5::File::create(path)); });
  std::vector<float> copy;
  for (const CheckpointPiece& piece : pieces) {
    if (values_in(piece) == 0) continue;
    require(!stop.stop_requested(), "{}: asked to stop", path.string());
    const float* values = piece.values;
    if (!on_host(piece)) {
      copy.resize(values_in(piece));
      copy_values(piece, copy);
      values = copy.data();
    }
    const std::string name = dataset_name(piece.name, piece.shape, piece.box);
    run([&] {
      before_each();
      file->create_dataset(name, DType::f32, piece.box.extent).write(values);
    });
  }
  run([&] { file->close(); });
}

/// Every logical tensor whole, as a view of the shards next to it. Needs no more of the manifest than the plan has.
/// `each` is called after each tensor.
void write_index(const fs::path& path, const Manifest& manifest, const std::function<void()>& each) {
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
      sources.push_back({shard_name(static_cast<int>(stored.file)), stored.dataset, stored.box});
    }
    if (sources.empty()) {
      file.create_dataset(tensor.name, DType::f32, tensor.shape);
    } else {
      file.create_virtual(tensor.name, DType::f32, tensor.shape, sources);
    }
    each();
  }
  file.close();
  sync_path(path);
}

/// One collective save. Each phase is done by every rank, or by rank 0 for all, and ends with all ranks knowing whether
/// all came through; so no rank continues alone, and none waits for one that gave up. A phase may take longer than the
/// group's timeout, see SharedWork.
class Writer {
 public:
  Writer(const ProcessGroup& group, const fs::path& root, const CheckpointHeader& header,
         std::span<const CheckpointPiece> pieces, CheckpointProbe probe)
      : group_(group),
        root_(root),
        name_(checkpoint_name(header.step)),
        partial_(root / (name_ + ".partial")),
        pieces_(pieces),
        probe_(std::move(probe)) {
    manifest_.header = header;
  }

  /// Collective. Throws the same Error everywhere, and so does publish().
  void begin() {
    const auto descriptions = agree(attempt([&] {
      probe("plan");
      return describe(manifest_.header, pieces_);
    }));
    rank_zero("prepare", [&] { prepare(descriptions); });
  }

  /// From now on the pieces that were given may change.
  void copy_pieces() {
    probe("copy");
    copy_.emplace(pieces_);
    pieces_ = copy_->pieces;
    probe("read");
  }

  /// Collective. Writes the files of all ranks; returns what publish() wants to know of this rank's.
  std::string write_files() {
    SharedWork work(group_, progress_);
    std::string answer = write_files({}, &work);
    work.finish();
    return answer;
  }

  /// Writes this rank's files without a message to others. A thread may do it while another one does anything else but
  /// call this object.
  std::string write_files(const std::stop_token& stop, SharedWork* work = nullptr) {
    const fs::path shard = partial_ / shard_name(group_.rank()), index = partial_ / index_name;
    const bool indexes = group_.rank() == 0;
    const auto run = [&](const std::function<void()>& action) { work ? work->run(action) : action(); };
    std::string answer = attempt([&] {
      run([&] { probe("shard"); });
      write_shard(shard, pieces_, stop, run, [&] {
        ++progress_;
        probe("values");
      });
      if (!copy_) probe("read");
      run([&] {
        sync_path(shard);
        if (indexes) write_index(index, manifest_, [&] { ++progress_; });
      });
      return std::string();
    });
    pieces_ = {};
    copy_.reset();
    if (failed(answer)) return answer;
    return attempt([&] {
      FileDigest digest;
      run([&] {
        probe("digest");
        if (indexes) index_digest_ = digest_of_file(index, stop);
        digest = digest_of_file(shard, stop);
      });
      return fmt::format("{} {}", digest.bytes, digest.sha256);
    });
  }

  /// Collective. Waits until `thread`, which writes this rank's files, and those of other ranks have ended.
  void wait_for(std::jthread& thread) {
    SharedWork work(group_, progress_);
    if (thread.joinable()) work.run([&] { thread.join(); });
    work.finish();
  }

  /// Collective. What went wrong after the checkpoint was published, or empty. `answer`: of write_files() here.
  std::string publish(const std::string& answer) {
    const auto digests = agree(answer);
    rank_zero("manifest", [&] { write_manifest(digests); });
    rank_zero("publish", [&] { rename(); });
    return group_.broadcast(complaint_, 0);
  }

  /// '+' and what the action returns, or '-' and why it failed.
  static std::string attempt(const std::function<std::string()>& action) {
    try {
      return '+' + action();
    } catch (const std::exception& error) {
      return std::string("-") + error.what();
    }
  }
  static bool failed(const std::string& answer) { return answer.starts_with('-'); }

 private:
  void probe(std::string_view phase) const {
    if (probe_) probe_(phase);
  }

  /// What every rank's action returned, on rank 0; or the same Error everywhere.
  std::vector<std::string> agree(const std::string& answer) {
    std::vector<std::string> answers = group_.gather(answer, 0);
    const auto bad = std::ranges::find_if(answers, failed);
    std::array<std::int64_t, 1> rank{bad == answers.end() ? -1 : bad - answers.begin()};
    group_.broadcast(std::as_writable_bytes(std::span(rank)), 0);
    if (rank[0] >= 0) give_up(static_cast<int>(rank[0]), group_.broadcast(answer, static_cast<int>(rank[0])).substr(1));
    for (std::string& text : answers) text.erase(0, 1);
    return answers;
  }

  void rank_zero(std::string_view phase, const std::function<void()>& action) {
    std::string answer;
    SharedWork work(group_, progress_);
    if (group_.rank() == 0) {
      answer = attempt([&] {
        work.run([&] {
          probe(phase);
          action();
        });
        return std::string();
      });
    }
    work.finish();
    answer = group_.broadcast(answer, 0);
    if (failed(answer)) give_up(0, answer.substr(1));
  }

  [[noreturn]] void give_up(int rank, std::string cause) {
    SharedWork work(group_, progress_);
    if (group_.rank() == 0) {
      work.run([&] {
        std::error_code ignored;
        fs::remove_all(partial_, ignored);
        fs::remove(root_ / "LATEST.partial", ignored);
      });
    }
    work.finish();  // the space is free again when the error is thrown, on every rank
    std::replace(cause.begin(), cause.end(), '\n', ' ');
    throw CheckpointNotSaved(
        ExitCode::failed,
        fmt::format("checkpoint {} was not saved: rank {}: {} (earlier checkpoints are untouched)", name_, rank, cause),
        std::source_location::current());
  }

  void prepare(const std::vector<std::string>& descriptions) {
    manifest_.tensors = plan(manifest_.header, descriptions);
    require_known_format(root_ / name_);
    make_directories(root_);
    std::error_code error;
    fs::remove_all(partial_, error);
    if (!error) fs::create_directory(partial_, error);
    require(!error, "{}: cannot be made anew: {}", partial_.string(), system_reason(error));
  }

  void write_manifest(const std::vector<std::string>& digests) {
    for (std::size_t rank = 0; rank < digests.size(); ++rank) {
      const std::string& digest = digests[rank];
      const std::size_t space = digest.find(' ');
      manifest_.files.push_back(
          {shard_name(static_cast<int>(rank)), {std::stoll(digest.substr(0, space)), digest.substr(space + 1)}});
    }
    manifest_.files.push_back({std::string(index_name), index_digest_});
    const CheckpointHeader& header = manifest_.header;
    for (const auto& [name, bytes] :
         {std::pair(tokenizer_name, &header.tokenizer), {transformers_name, &header.transformers}}) {
      if (bytes->empty()) continue;
      write_file(partial_ / name, *bytes);
      manifest_.files.push_back({std::string(name), {static_cast<std::int64_t>(bytes->size()), sha256(*bytes)}});
    }
    write_file(partial_ / manifest_name, manifest_text(manifest_));
    write_file(root_ / "LATEST.partial", name_ + "\n");  // here, so that publishing needs no space
    sync_path(partial_);
  }

  /// Once the directory has its name the checkpoint is saved, whatever becomes of the rest.
  void rename() {
    const fs::path replaced = publish_directory(partial_, root_ / name_);
    try {
      probe("latest");
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
  std::optional<HostCopy> copy_;
  const CheckpointProbe probe_;
  Manifest manifest_;                       // files and tensors: on rank 0
  FileDigest index_digest_;                 // on rank 0
  std::string complaint_;                   // of rank 0
  std::atomic<std::int64_t> progress_ = 0;  // pieces and tensors written
};

}  // namespace

std::string write_checkpoint(const ProcessGroup& group, const std::filesystem::path& root,
                             const CheckpointHeader& header, std::span<const CheckpointPiece> pieces,
                             const CheckpointProbe& probe) {
  Writer writer(group, root, header, pieces, probe);
  writer.begin();
  return writer.publish(writer.write_files());
}

struct BackgroundCheckpoint::Implementation {
  Writer writer;
  std::string answer;
  std::atomic<bool> written = false;
  std::jthread thread = {};  // last: it uses the others
};

BackgroundCheckpoint::BackgroundCheckpoint(const ProcessGroup& group, const std::filesystem::path& root,
                                           const CheckpointHeader& header, std::span<const CheckpointPiece> pieces,
                                           const CheckpointProbe& probe)
    : implementation_(new Implementation{.writer = {group, root, header, pieces, probe}, .answer = {}}) {
  Implementation& self = *implementation_;
  self.writer.begin();
  const std::string started = Writer::attempt([&] {
    self.writer.copy_pieces();
    self.thread = std::jthread([&self](const std::stop_token& stop) {
      self.answer = self.writer.write_files(stop);
      self.written = true;
    });
    return std::string();
  });
  if (!Writer::failed(started)) return;  // the rest is the thread's
  self.answer = started;
  self.written = true;
}

BackgroundCheckpoint::~BackgroundCheckpoint() = default;
BackgroundCheckpoint::BackgroundCheckpoint(BackgroundCheckpoint&&) noexcept = default;

bool BackgroundCheckpoint::written() const { return implementation_->written; }

std::string BackgroundCheckpoint::publish() {
  Implementation& self = *implementation_;
  self.writer.wait_for(self.thread);
  return self.writer.publish(self.answer);
}

}  // namespace lyceum
