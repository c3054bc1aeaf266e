#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lyceum {

/// A Megatron token file, `prefix.bin` and `prefix.idx`, with a `prefix.mask` where only some tokens are trained
/// (token_format.h), read as it is asked for. Every way in which they can be missing, cut short (now or later, while
/// they are read) or inconsistent is a bad_input Error that names the file and what to do.
class TokenFile {
 public:
  explicit TokenFile(const std::string& prefix);
  ~TokenFile();
  TokenFile(TokenFile&&) noexcept;

  std::int64_t tokens() const;
  std::int64_t sequences() const;
  std::int64_t documents() const;  // whole documents, without the closing boundary
  /// Index into the token stream where document d begins; documents() gives tokens().
  std::int64_t document_begin(std::int64_t d) const;
  /// All of these, that of documents() too.
  std::vector<std::int64_t> document_begins() const;
  /// Where documents begin among tokens [first, end); of empty ones the place once.
  std::vector<std::int64_t> document_begins(std::int64_t first, std::int64_t end) const;
  /// Copies tokens [first, first + out.size()) widened to 32 bits; a token that needs more is a bad_input Error.
  void read(std::int64_t first, std::span<std::int32_t> out) const;
  /// Whether a mask says which tokens are trained.
  bool has_mask() const;
  /// Whether each of the tokens [first, first + out.size()) is trained, 1 or 0: 1 without a mask.
  void read_trained(std::int64_t first, std::span<std::uint8_t> out) const;
  /// Largest token; reads the whole file (once: the answer is kept).
  std::int64_t largest_token() const;
  const std::string& prefix() const;
  /// SHA-256 of the sizes of the files and of up to 1 MiB of each, spread evenly: shows within milliseconds whether
  /// they are others. A change of less than a 256th of a large file may go unseen.
  std::string fingerprint() const;

 private:
  void require_within(std::int64_t first, std::int64_t count) const;

  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// Writes `prefix.bin`/`prefix.idx`, u16 tokens when the vocabulary fits, else i32, and `prefix.mask` when a document
/// comes with one; finish() removes an old one otherwise, and an old `prefix.json`. Files appear under their own names
/// only when finish() has written all. Memory does not grow with them.
class TokenFileWriter {
 public:
  /// How far they are written.
  struct Progress {
    std::int64_t documents = 0, sequences = 0, tokens = 0;
    bool masked = false;
    bool operator==(const Progress&) const = default;
  };

  /// `vocab`: above every token. The folder is made when missing. Throws an Error when another process writes `prefix`.
  TokenFileWriter(std::string prefix, std::int64_t vocab) : TokenFileWriter(std::move(prefix), vocab, {}) {}
  /// Goes on where save() was called; kept() must hold.
  TokenFileWriter(std::string prefix, std::int64_t vocab, const Progress& from);
  ~TokenFileWriter();
  TokenFileWriter(TokenFileWriter&&) noexcept;

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
  /// Whether unfinished files hold this much.
  static bool kept(const std::string& prefix, std::int64_t vocab, const Progress& progress);
  /// Throws when nothing was added.
  void finish();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// What the token files of one prefix were made from, in `prefix.json` next to them. Bits per byte need it:
/// nats per token · tokens / (bytes · ln 2).
struct TokenMeta {
  std::int64_t bytes = 0;  // of text
  std::int64_t documents = 0;
  std::int64_t tokens = 0;                // with an end-of-document token after each document
  std::optional<std::int64_t> trained{};  // of them, where prefix.mask says which
  std::string chat{};                     // name of the template of chats; empty: they are none
  std::int64_t vocab = 0;
  std::string tokenizer{};  // file name of the model
  std::string tokenizer_sha256{};
  bool operator==(const TokenMeta&) const = default;
};
/// Nothing when there is no such file (token files from elsewhere); a damaged one is a bad_input Error.
std::optional<TokenMeta> read_token_meta(const std::string& prefix);
void write_token_meta(const std::string& prefix, const TokenMeta& meta);

/// Entropy of the unigram distribution of tokens [first, first + count), nats per token, by empirical frequency. Reads
/// no others; tokens beyond 2^24 are a bad_input Error.
double unigram_entropy(const TokenFile& file, std::int64_t first, std::int64_t count);

}  // namespace lyceum
