#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "io/data/tokens/token_meta.h"

namespace lyceum {

/// Returns the path of the lengths of sequences, which a MegatronWriter keeps until it publishes the index.
std::string lengths_path(const std::string& prefix);

/// Writes the token files PREFIX.bin and PREFIX.idx, PREFIX.mask if a document has a mask, and their description
/// PREFIX.json. Tokens are u16 if the vocabulary fits, else i32. The files have temporary names until they are
/// published. The use of memory does not grow with the files.
class MegatronWriter {
 public:
  /// The amount of data that was written, and whether (`masked`) a document had a mask.
  struct Progress {
    std::int64_t documents = 0, sequences = 0, tokens = 0;
    bool masked = false;
    bool operator==(const Progress&) const = default;
  };

  /// `vocab`: the size of the vocabulary, greater than each token. Creates the folder if it is missing. Throws a
  /// failed Error if the files cannot be written, for example because another process writes them.
  MegatronWriter(std::string prefix, std::int64_t vocab) : MegatronWriter(std::move(prefix), vocab, {}) {}
  /// Continues after the documents that an earlier writer saved: `from` is a result of its save(). Precondition:
  /// can_resume() returns true for it.
  MegatronWriter(std::string prefix, std::int64_t vocab, const Progress& from);
  ~MegatronWriter();
  MegatronWriter(MegatronWriter&&) noexcept;

  /// Adds a whole document, all tokens of which are trained. Throws a failed Error if a token is not in [0, vocab), or
  /// if the file cannot be written.
  void add_document(std::span<const std::int32_t> tokens) { add_sequence(tokens, std::nullopt, true); }
  /// Adds a whole document. `trained`: for each token, 1 if its prediction counts in the loss, else 0. The files then
  /// have a mask, in which all tokens of documents that were added without `trained` count.
  void add_document(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> trained) {
    add_sequence(tokens, trained, true);
  }
  /// Adds a part of a document that is too long for memory. The document ends with the first part whose `ends_document`
  /// is true. `trained`: as in add_document().
  void add_sequence(std::span<const std::int32_t> tokens, std::optional<std::span<const std::uint8_t>> trained,
                    bool ends_document);
  /// Writes everything that was added to the disk. It is kept even if the writer is destroyed before finish().
  Progress save();
  /// True if the unfinished files of `prefix` have at least the sizes that `progress` requires.
  static bool can_resume(const std::string& prefix, std::int64_t vocab, const Progress& progress);
  /// Writes all files to the disk, with the description `meta` unless it is empty. Throws a bad_input Error if no token
  /// was added, and a failed Error if the last document has no end or the disk is full. The files of an earlier writer
  /// are not changed; the unfinished files are removed after an error, unless save() has marked them to be kept.
  void complete(const std::optional<TokenMeta>& meta);
  /// Publishes the completed files. PREFIX.json and PREFIX.mask of an earlier writer are removed if this one has none.
  void publish();
  /// Completes and publishes the files.
  void finish(const std::optional<TokenMeta>& meta = std::nullopt) {
    complete(meta);
    publish();
  }

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum
