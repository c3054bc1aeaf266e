#include "io/checkpoint/write.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "io/checkpoint/directory.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/save_plan.h"
#include "io/checkpoint/shard.h"
#include "io/files/atomic_file.h"
#include "io/files/system_reason.h"
#include "parallel/comm/shared_work.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;

/// Throws UnknownFormat if `directory` is a checkpoint that this build cannot read. Such a checkpoint must not be
/// replaced.
void require_known_format(const fs::path& directory) {
  if (!fs::exists(directory / manifest_name)) return;
  try {
    read_manifest_head(directory);
  } catch (const UnknownFormat&) {
    throw;
  } catch (const Error&) {
    // A damaged checkpoint may be replaced.
  }
}

/// One collective save. Each phase is executed by every rank, or by rank 0 alone. At its end all ranks know whether it
/// succeeded on all of them, so no rank continues alone or waits for a rank that has failed. A phase may take longer
/// than the group's timeout (see SharedWork).
class Writer {
 public:
  Writer(const ProcessGroup& group, const fs::path& root, const CheckpointHeader& header,
         std::span<const CheckpointSlice> slices, CheckpointProbe probe)
      : group_(group),
        root_(root),
        name_(checkpoint_name(header.step)),
        partial_(root / (name_ + ".partial")),
        slices_(slices),
        probe_(std::move(probe)) {
    manifest_.header = header;
  }

  /// Collective. Plans the save and creates the partial directory. Throws the same CheckpointNotSaved on every rank.
  void begin() {
    const auto descriptions = gather_or_fail(attempt([&] {
      probe("plan");
      return describe_slices(manifest_.header, slices_);
    }));
    run_on_rank_zero("prepare", [&] { prepare(descriptions); });
  }

  /// Copies the slices to the host's memory. Afterwards their original values may change.
  void copy_slices() {
    probe("copy");
    copy_.emplace(slices_);
    slices_ = copy_->slices;
    probe("read");
  }

  /// Collective. Writes the files of all ranks. Returns this rank's outcome, which is to be passed to publish().
  std::string write_files() {
    SharedWork work(group_, progress_);
    std::string answer = write_files({}, &work);
    work.finish();
    return answer;
  }

  /// Writes this rank's files; sends no messages unless `work` is given. May run in another thread if no other
  /// thread uses this object meanwhile. Returns the outcome for publish(): '+' with size and SHA-256 of the shard, or
  /// '-' with the error.
  std::string write_files(const std::stop_token& stop, SharedWork* work = nullptr) {
    const fs::path shard = partial_ / shard_name(group_.rank()), index = partial_ / index_name;
    const bool indexes = group_.rank() == 0;
    const auto run = [&](const std::function<void()>& action) { work ? work->run(action) : action(); };
    std::string answer = attempt([&] {
      run([&] { probe("shard"); });
      write_shard(shard, slices_, stop, run, [&] {
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
    slices_ = {};
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

  /// Collective. Waits until `thread`, which runs write_files() of this rank, has ended on every rank.
  void wait_for(std::jthread& thread) {
    SharedWork work(group_, progress_);
    if (thread.joinable()) work.run([&] { thread.join(); });
    work.finish();
  }

  /// Collective. Publishes the checkpoint. `answer` is the outcome of write_files() on this rank. Returns what went
  /// wrong after the checkpoint was published, or an empty string. Throws the same CheckpointNotSaved on every rank.
  std::string publish(const std::string& answer) {
    const auto digests = gather_or_fail(answer);
    run_on_rank_zero("manifest", [&] { write_manifest(digests); });
    run_on_rank_zero("publish", [&] { rename(); });
    return group_.broadcast(complaint_, 0);
  }

  /// Calls `action`. Returns '+' and its result, or '-' and the message of its exception.
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

  /// Collective. Exchanges outcomes of attempt(). Returns the results of all ranks on rank 0; if any failed, cleans up
  /// and throws the same CheckpointNotSaved on every rank.
  std::vector<std::string> gather_or_fail(const std::string& answer) {
    std::vector<std::string> answers = group_.gather(answer, 0);
    const auto bad = std::ranges::find_if(answers, failed);
    std::array<std::int64_t, 1> rank{bad == answers.end() ? -1 : bad - answers.begin()};
    group_.broadcast(std::as_writable_bytes(std::span(rank)), 0);
    if (rank[0] >= 0)
      fail_save(static_cast<int>(rank[0]), group_.broadcast(answer, static_cast<int>(rank[0])).substr(1));
    for (std::string& text : answers) text.erase(0, 1);
    return answers;
  }

  /// Collective. Executes `action` on rank 0. If it fails, cleans up and throws the same CheckpointNotSaved on every
  /// rank.
  void run_on_rank_zero(std::string_view phase, const std::function<void()>& action) {
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
    if (failed(answer)) fail_save(0, answer.substr(1));
  }

  /// Collective. Removes the partial directory and throws CheckpointNotSaved.
  [[noreturn]] void fail_save(int rank, std::string cause) {
    SharedWork work(group_, progress_);
    if (group_.rank() == 0) {
      work.run([&] {
        std::error_code ignored;
        fs::remove_all(partial_, ignored);
        fs::remove(root_ / "LATEST.partial", ignored);
      });
    }
    work.finish();  // the space is free before any rank throws
    std::replace(cause.begin(), cause.end(), '\n', ' ');
    throw CheckpointNotSaved(
        ExitCode::failed,
        fmt::format("checkpoint {} was not saved: rank {}: {} (earlier checkpoints are untouched)", name_, rank, cause),
        std::source_location::current());
  }

  void prepare(const std::vector<std::string>& descriptions) {
    manifest_.tensors = plan_tensors(manifest_.header, descriptions);
    require_known_format(root_ / name_);
    make_directories(root_);
    std::error_code error;
    fs::remove_all(partial_, error);
    if (!error) fs::create_directory(partial_, error);
    require(!error, "{}: cannot be created again: {}", partial_.string(), system_reason(error));
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
    // Written before publication, which then needs no further space on the disk.
    write_file(root_ / "LATEST.partial", name_ + "\n");
    sync_path(partial_);
  }

  /// Publishes the directory and LATEST. Errors after the directory has its name do not fail the save; they are stored
  /// in complaint_.
  void rename() {
    const fs::path replaced = publish_directory(partial_, root_ / name_);
    try {
      probe("latest");
      sync_path(root_);
      rename_path(root_ / "LATEST.partial", root_ / "LATEST");
      sync_path(root_);
      if (!replaced.empty()) fs::remove_all(replaced);
    } catch (const std::exception& error) {
      complaint_ = fmt::format("checkpoint {} was saved, but: {} (the next start repairs this)", name_, error.what());
    }
  }

  const ProcessGroup& group_;
  fs::path root_;
  std::string name_;
  fs::path partial_;
  std::span<const CheckpointSlice> slices_;
  std::optional<HostCopy> copy_;
  const CheckpointProbe probe_;
  Manifest manifest_;                       // its files and tensors are set on rank 0 only
  FileDigest index_digest_;                 // set on rank 0
  std::string complaint_;                   // set on rank 0: what went wrong after publication
  std::atomic<std::int64_t> progress_ = 0;  // number of slices and tensors written
};

}  // namespace

std::string write_checkpoint(const ProcessGroup& group, const std::filesystem::path& root,
                             const CheckpointHeader& header, std::span<const CheckpointSlice> slices,
                             const CheckpointProbe& probe) {
  Writer writer(group, root, header, slices, probe);
  writer.begin();
  return writer.publish(writer.write_files());
}

struct BackgroundCheckpoint::Implementation {
  Writer writer;
  std::string answer;
  std::atomic<bool> written = false;
  std::jthread thread = {};  // declared last: destroyed, and so joined, before the members that it uses
};

BackgroundCheckpoint::BackgroundCheckpoint(const ProcessGroup& group, const std::filesystem::path& root,
                                           const CheckpointHeader& header, std::span<const CheckpointSlice> slices,
                                           const CheckpointProbe& probe)
    : implementation_(new Implementation{.writer = {group, root, header, slices, probe}, .answer = {}}) {
  Implementation& self = *implementation_;
  self.writer.begin();
  const std::string started = Writer::attempt([&] {
    self.writer.copy_slices();
    self.thread = std::jthread([&self](const std::stop_token& stop) {
      self.answer = self.writer.write_files(stop);
      self.written = true;
    });
    return std::string();
  });
  if (!Writer::failed(started)) return;  // the thread sets `answer` and `written`
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
