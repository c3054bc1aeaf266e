#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/files/input_file.h"
#include "io/files/sha256.h"

namespace lyceum {

/// A stream of tokens in documents, of which samples are made. The table of token_formats.cpp lists the formats of
/// files that implement it; open_tokens() opens one. Everything is read when it is asked for, by any thread. Data that
/// are missing, truncated (now or later, while they are read) or inconsistent are bad_input Errors that name the file
/// and what to do.
///
/// If only some tokens are trained, `PREFIX.mask` is next to the files, whatever their format: a byte for each token,
/// 1 if its prediction counts in the loss, else 0.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;

  virtual std::int64_t tokens() const = 0;
  virtual std::int64_t documents() const = 0;
  /// Index of the token that document d begins with; documents() gives tokens().
  virtual std::int64_t document_begin(std::int64_t d) const = 0;
  /// Returns document_begin() of 0 to documents().
  virtual std::vector<std::int64_t> document_begins() const = 0;
  /// The file that holds the tokens, for messages.
  virtual const std::string& path() const = 0;

  /// The name that the configuration has for it.
  const std::string& prefix() const { return prefix_; }
  /// Returns the tokens of [first, end) that documents begin with, without repetitions.
  std::vector<std::int64_t> document_begins(std::int64_t first, std::int64_t end) const;
  /// Copies tokens [first, first + out.size()), widened to 32 bits; a token that needs more is a bad_input Error.
  void read(std::int64_t first, std::span<std::int32_t> out) const;
  /// True if a mask says which tokens are trained.
  bool has_mask() const { return mask_.has_value(); }
  /// For each of the tokens [first, first + out.size()), 1 if it is trained, else 0; 1 without a mask.
  void read_trained(std::int64_t first, std::span<std::uint8_t> out) const;
  /// Returns the identity of the contents: a SHA-256 of the sizes of the files and of up to 1 MiB of each,
  /// spread evenly, which takes milliseconds. A change of less than a 256th of a large file may go unseen.
  std::string fingerprint() const;

 protected:
  explicit TokenSource(std::string prefix) : prefix_(std::move(prefix)) {}

 private:
  friend std::shared_ptr<const TokenSource> open_tokens(const std::string& prefix);

  /// Does what read() does; the range is within the tokens.
  virtual void copy_tokens(std::int64_t first, std::span<std::int32_t> out) const = 0;
  /// Adds to a digest what identifies the contents, in general by add_sample() of each file.
  virtual void add_contents(Sha256& digest) const = 0;

  void open_mask();
  void require_within(std::int64_t first, std::int64_t count) const;

  std::string prefix_;
  std::optional<InputFile> mask_{};
};

std::string mask_path(const std::string& prefix);

/// Adds to a digest a file's size and enough of it to distinguish it from others: up to 256 blocks of 4 KiB, spread
/// evenly from its first byte to its last.
void add_sample(Sha256& digest, const InputFile& file);

}  // namespace lyceum
