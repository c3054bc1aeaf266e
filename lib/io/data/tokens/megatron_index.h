#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "io/data/tokens/megatron_format.h"
#include "io/files/input_file.h"

namespace lyceum {

/// The `.idx` of a token file. The constructor checks it for consistency, also with the size of the `.bin`.
class MegatronIndex {
 public:
  /// `bin_bytes`: the size of the `.bin`. Throws a bad_input Error that names the file, the value found and the value
  /// expected.
  MegatronIndex(const std::string& prefix, std::uint64_t bin_bytes);

  const InputFile& file() const { return file_; }
  /// Returns the type of the tokens, which is an integer type.
  const megatron::Type& type() const { return *type_; }
  std::int64_t sequences() const { return sequences_; }
  std::int64_t documents() const { return boundaries_ - 1; }
  /// Returns the position of the first token of document d. document_begin(documents()) is the number of tokens. Reads
  /// the file on each call; for all documents, for_document_begins() is faster. Throws a failed Error unless 0 ≤ d ≤
  /// documents().
  std::int64_t document_begin(std::int64_t d) const;
  /// See TokenSource::for_document_begins().
  void for_document_begins(const std::function<void(std::span<const std::int64_t>)>& each) const;

 private:
  void read_header();
  /// Checks that the lengths add up to the tokens in the .bin, and that the offsets follow from them.
  void check_lengths() const;
  void check_documents() const;
  FileValues<std::int32_t> lengths() const;     // of each sequence, in tokens
  FileValues<std::int64_t> offsets() const;     // of each sequence in the .bin, in bytes
  FileValues<std::int64_t> boundaries() const;  // the first sequence of each document, then the number of sequences
  std::size_t offsets_begin() const;            // byte offset in the .idx
  std::size_t boundaries_begin() const;

  InputFile file_;
  std::string bin_;
  std::int64_t bin_bytes_;
  const megatron::Type* type_ = nullptr;
  std::int64_t sequences_ = 0, boundaries_ = 0;
};

}  // namespace lyceum
