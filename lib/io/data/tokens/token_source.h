#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/files/input_file.h"
#include "io/files/sha256.h"

namespace lyceum {

/// A sequence of tokens, divided into documents. The table in token_formats.cpp lists the file formats that implement
/// it; open_tokens() opens one. Data are read from the files on each call, and any thread may call. If data are
/// missing, inconsistent or truncated (also while the source is open), throws a bad_input Error that names the file and
/// a remedy.
///
/// If only some tokens are trained, there is a file PREFIX.mask, whatever the format: one byte per token, 1 if its
/// prediction counts in the loss, else 0.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;

  /// Returns the number of tokens.
  virtual std::int64_t tokens() const = 0;
  /// Returns the number of documents, some of which may be empty.
  virtual std::int64_t documents() const = 0;
  /// Returns the position of the first token of document d. document_begin(documents()) is tokens().
  virtual std::int64_t document_begin(std::int64_t d) const = 0;
  /// Calls `each` with blocks of numbers, which together are document_begin() of 0 to documents(), in this order. Uses
  /// constant memory.
  virtual void for_document_begins(const std::function<void(std::span<const std::int64_t>)>& each) const = 0;
  /// Returns the path of the file with the tokens, for messages.
  virtual const std::string& path() const = 0;

  /// Returns the prefix of the files, as the configuration names it.
  const std::string& prefix() const { return prefix_; }
  /// Returns the positions in [first, end) at which documents begin, ascending and without repetitions.
  std::vector<std::int64_t> document_begins(std::int64_t first, std::int64_t end) const;
  /// Copies tokens [first, first + out.size()), converted to 32 bits. Throws a bad_input Error if a token does not fit,
  /// and a failed Error if the range is not within the tokens.
  void read(std::int64_t first, std::span<std::int32_t> out) const;
  /// True if there is a mask.
  bool has_mask() const { return mask_.has_value(); }
  /// Writes the mask of the tokens [first, first + out.size()): 1 for a token that is trained, else 0. Without a mask,
  /// all are trained. Throws a bad_input Error if the mask has another value, and a failed Error if the range is not
  /// within the tokens.
  void read_trained(std::int64_t first, std::span<std::uint8_t> out) const;
  /// Returns the identity of the contents: a SHA-256 of the sizes of the files and of up to 1 MiB of each, spread
  /// evenly. Takes milliseconds. A change within a large file may go unnoticed if it is between the blocks read.
  std::string fingerprint() const;

 protected:
  explicit TokenSource(std::string prefix) : prefix_(std::move(prefix)) {}

 private:
  friend std::shared_ptr<const TokenSource> open_tokens(const std::string& prefix);

  /// Implements read(). The range is within the tokens.
  virtual void copy_tokens(std::int64_t first, std::span<std::int32_t> out) const = 0;
  /// Adds everything that identifies the contents to a digest, usually with add_sample() of each file.
  virtual void add_contents(Sha256& digest) const = 0;

  void open_mask();
  void require_within(std::int64_t first, std::int64_t count) const;

  std::string prefix_;
  std::optional<InputFile> mask_{};
};

/// Returns PREFIX.mask.
std::string mask_path(const std::string& prefix);

/// Adds the size of a file and a sample of its contents to a digest: up to 256 blocks of 4 KiB, spread evenly from the
/// first byte to the last.
void add_sample(Sha256& digest, const InputFile& file);

}  // namespace lyceum
