#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace lyceum {

/// Writes `prefix.bin`/`prefix.idx`, u16 tokens when the vocabulary fits, else i32, and `prefix.mask` when a document
/// comes with one; finish() removes an old one otherwise, and an old `prefix.json`. Files appear under their own names
/// only when finish() has written all. Memory does not grow with them.
class MegatronWriter {
 public:
  /// How far they are written.
  struct Progress {
    std::int64_t documents = 0, sequences = 0, tokens = 0;
    bool masked = false;
    bool operator==(const Progress&) const = default;
  };

  /// `vocab`: above every token. The folder is made when missing. Throws an Error when another process writes `prefix`.
  MegatronWriter(std::string prefix, std::int64_t vocab) : MegatronWriter(std::move(prefix), vocab, {}) {}
  /// Goes on where save() was called; kept() must hold.
  MegatronWriter(std::string prefix, std::int64_t vocab, const Progress& from);
  ~MegatronWriter();
  MegatronWriter(MegatronWriter&&) noexcept;

  void add_document(std::span<const std::int32_t> tokens) { add_sequence(tokens, std::nullopt, true); }
  /// `trained`: whether each token's prediction counts in the loss, 1 or 0. Documents added without it count as a
  /// whole.
  void add_document(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> trained) {
    add_sequence(tokens, trained, true);
  }
  /// A part of a document that is too long to be held in memory.
  void add_sequence(std::span<const std::int32_t> tokens, std::optional<std::span<const std::uint8_t>> trained,
                    bool ends_document);
  /// Puts on the disk what was added; from now on it is kept when the writer ends before finish().
  Progress save();
  /// True if unfinished files hold this much.
  static bool kept(const std::string& prefix, std::int64_t vocab, const Progress& progress);
  /// Throws when nothing was added.
  void finish();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum
