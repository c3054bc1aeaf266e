#include "io/data/loader/packing.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "io/data/loader/packing_file.h"
#include "io/files/made_once.h"
#include "io/text/table.h"

namespace lyceum {

namespace fs = std::filesystem;

Packing::Packing(const PackingRequest& request) {
  std::vector<std::int64_t> placements;
  const PlacementStore store{
      .append = [&](auto sequences) { placements.insert(placements.end(), sequences.begin(), sequences.end()); },
      .read = [&](std::int64_t first,
                  auto sequences) { std::copy_n(placements.begin() + first, sequences.size(), sequences.begin()); }};
  Held held;
  held.firsts = pack_spans(request, store, request.survey.spans,
                           [&](std::span<const TokenSpan> spans) { held.spans.assign(spans.begin(), spans.end()); });
  counts_ = counts_of(request, std::ssize(held.firsts) - 1);
  spans_ = std::move(held);
}

Packing::Packing(std::unique_ptr<const InputFile> file, const PackingCounts& counts)
    : counts_(counts), spans_(std::move(file)) {}

std::vector<TokenSpan> Packing::spans_of(std::int64_t sequence) const {
  require(sequence >= 0 && sequence < counts_.sequences, "there is no sequence {} in a packing of {}", sequence,
          counts_.sequences);
  if (const InputFile* const on_disk = file()) return read_packed_sequence(*on_disk, counts_, sequence);
  const Held& held = std::get<Held>(spans_);
  const auto s = static_cast<std::size_t>(sequence);
  return {held.spans.begin() + held.firsts[s], held.spans.begin() + held.firsts[s + 1]};
}

const InputFile* Packing::file() const {
  const auto* const on_disk = std::get_if<OnDisk>(&spans_);
  return on_disk ? on_disk->get() : nullptr;
}

namespace {

/// Opens the packing in a file; null if the file is missing or has another packing.
std::shared_ptr<const Packing> packing_in(const std::string& path, const PackingRequest& request) {
  std::error_code absent;
  if (!fs::exists(path, absent)) return nullptr;
  try {
    auto file = std::make_unique<const InputFile>(path, "remove it");
    const std::optional<PackingCounts> counts = packing_counts(*file, request);
    return counts ? std::make_shared<const Packing>(std::move(file), *counts) : nullptr;
  } catch (const Error&) {  // the file cannot be read: it is replaced, or a file elsewhere is used
    return nullptr;
  }
}

/// Creates a folder that only this user may write. Throws a failed Error if it belongs to another user.
void make_own_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  struct stat status {};
  const bool made = ::mkdir(folder.c_str(), 0700) == 0;
  require(made || (::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode)), "{} cannot be created",
          folder.string());
  require(made || (status.st_uid == ::geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0),
          "{} can be written by other users", folder.string());
}

void require_space(const fs::path& folder, std::int64_t bytes) {
  std::error_code unknown;
  const fs::space_info space = fs::space(folder, unknown);
  require(unknown || space.available >= static_cast<std::uintmax_t>(bytes), "{} has {} left, but up to {} are needed",
          folder.string(), text_of_bytes(static_cast<std::int64_t>(space.available)), text_of_bytes(bytes));
}

/// Returns the packing in the file `path`, after making the file if it is missing. Throws a failed Error if that is not
/// possible.
std::shared_ptr<const Packing> packing_made_in(const std::string& path, const PackingRequest& request) {
  std::shared_ptr<const Packing> packing;
  std::pair<std::uintmax_t, std::uintmax_t> last;  // sizes of the files that another process writes
  make_once(
      path, [&] { return (packing = packing_in(path, request)) != nullptr; },
      [&](PartialFile& file) {
        const fs::path folder = fs::path(path).parent_path();
        require_space(folder.empty() ? "." : folder, most_packing_bytes(request.survey.spans));
        write_packing_file(file, request);
      },
      [&] {
        std::error_code missing;
        const std::pair sizes(fs::file_size(path + ".partial", missing),
                              fs::file_size(path + ".placements.partial", missing));
        if (request.progress && sizes != last) ++*request.progress;
        last = sizes;
      });
  return packing;
}

}  // namespace

fs::path PackingPlaces::local_folder() {
  if (const char* const cache = std::getenv("LYCEUM_CACHE"); cache && *cache) return fs::path(cache) / "packings";
  const char* const temporary = std::getenv("TMPDIR");
  return fs::path(temporary && *temporary ? temporary : "/tmp") / ("lyceum-" + std::to_string(::geteuid()));
}

bool has_packing_file(const TokenSource& source, std::int64_t seq_len, const PackingPlaces& places) {
  require_usage(seq_len > 0, "batch.seq_len={}: a sample must have at least one token", seq_len);
  return source.documents() + source.tokens() / seq_len > places.most_held_spans;
}

std::shared_ptr<const Packing> open_packing(const TokenSource& source, std::int64_t seq_len,
                                            const PackingPlaces& places, std::atomic<std::int64_t>* progress) {
  const bool in_file = has_packing_file(source, seq_len, places);
  const SpanSurvey survey = survey_spans(source, seq_len, progress);
  const PackingRequest request{.source = source, .seq_len = seq_len, .survey = survey, .progress = progress};
  if (!in_file || survey.spans == 0) return std::make_shared<const Packing>(request);
  const std::string ending = ".packing";
  const std::string beside = source.prefix() + "." + std::to_string(seq_len) + ending;
  const std::string local = places.local / (survey.key.substr(0, 32) + ending);
  std::string reasons;
  for (const std::string& path : {beside, local}) {
    try {
      if (path == local) make_own_folder(places.local);
      return packing_made_in(path, request);
    } catch (const Error& error) {
      if (error.code() != ExitCode::failed) throw;
      reasons += std::string(reasons.empty() ? "" : "; ") + error.what();
    }
  }
  const std::int64_t bytes = most_packing_bytes(survey.spans);
  require(bytes <= places.most_held_bytes,
          "the index of the packed samples of {} has up to {}, and there is no room for it: {}; make the folder of the "
          "token files writable, or set TMPDIR to a folder with room",
          source.prefix(), text_of_bytes(bytes), reasons);
  return std::make_shared<const Packing>(request);
}

}  // namespace lyceum
