#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "io/data/loader/pack_spans.h"
#include "io/files/input_file.h"

namespace lyceum {

/// Packs the documents of a source into sequences of seq_len inputs: the spans of all documents (for_spans()), in their
/// order, are placed by BestFit. The spans ordered by sequence are the index of the packed samples. It is in memory if
/// the source is small, or else in a file that all processes share. Any thread may read.
class Packing {
 public:
  /// Packs in memory, with 16 bytes per span and 8 per sequence, and three times as much while packing.
  explicit Packing(const PackingRequest& request);
  /// Reads the sequences from a file when spans_of() is called. `counts`: packing_counts() of the file.
  Packing(std::unique_ptr<const InputFile> file, const PackingCounts& counts);

  const PackingCounts& counts() const { return counts_; }
  /// Returns the number of sequences.
  std::int64_t sequences() const { return counts_.sequences; }
  /// Returns the spans of a sequence, which fill it from its beginning without gaps. The rest of it is padding. Throws
  /// a bad_input Error that names the file if it is damaged.
  std::vector<TokenSpan> spans_of(std::int64_t sequence) const;
  /// Returns the file that has the spans; null if they are in memory.
  const InputFile* file() const;

 private:
  struct Held {
    std::vector<TokenSpan> spans;      // ordered by sequence
    std::vector<std::int64_t> firsts;  // index in `spans` of each sequence's first span; then spans.size()
  };
  using OnDisk = std::unique_ptr<const InputFile>;

  PackingCounts counts_;
  std::variant<Held, OnDisk> spans_;
};

/// The places of packings.
struct PackingPlaces {
  std::int64_t most_held_spans = std::int64_t{1} << 16;  // sources with more spans than this have files
  /// If there is no room for a file: the largest packing, in bytes, that each process holds in memory instead.
  std::int64_t most_held_bytes = std::int64_t{1} << 28;
  /// The folder of this machine for the files of sources whose own folder cannot be written.
  std::filesystem::path local = local_folder();

  /// Returns $LYCEUM_CACHE/packings if that is set; else lyceum-UID in $TMPDIR, or in /tmp if it is not set, where UID
  /// is the number of the user.
  static std::filesystem::path local_folder();
};

/// True if the packing of a source is in a file. Reads no documents, so all ranks with the same source agree.
bool has_packing_file(const TokenSource& source, std::int64_t seq_len, const PackingPlaces& places = {});

/// Returns the packing of a source. If it needs a file, and there is none for these documents and this seq_len, makes
/// PREFIX.SEQ_LEN.packing; if the folder of PREFIX cannot be written or is full, KEY.packing in places.local, where KEY
/// depends on the documents and on seq_len. Of several processes that call this at the same time, one makes the file,
/// and the others wait for it. A file that is not that of the documents is replaced. If no file can be made, packs in
/// memory, or throws a failed Error that gives the reasons if the packing is larger than places.most_held_bytes. Throws
/// a usage Error unless seq_len > 0, and the errors of TokenSource. `progress`: unless null, a counter that changes
/// while this process packs, or waits for another one whose file grows (see SharedWork).
std::shared_ptr<const Packing> open_packing(const TokenSource& source, std::int64_t seq_len,
                                            const PackingPlaces& places = {},
                                            std::atomic<std::int64_t>* progress = nullptr);

}  // namespace lyceum
