#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/data/tokens/megatron_format.h"
#include "io/files/input_file.h"

namespace lyceum {

/// The `.idx` of a token file, checked against itself and the size of its `.bin`.
class MegatronIndex {
 public:
  /// Throws a bad_input Error that names the file, what it says and what was expected.
  MegatronIndex(const std::string& prefix, std::uint64_t bin_bytes);

  const InputFile& file() const { return file_; }
  const megatron::Type& type() const { return *type_; }
  std::int64_t sequences() const { return sequences_; }
  std::int64_t documents() const { return boundaries_ - 1; }
  /// Token at which document d begins; documents() gives the number of tokens.
  std::int64_t document_begin(std::int64_t d) const;
  /// Of all documents, and the number of tokens.
  std::vector<std::int64_t> document_begins() const;

 private:
  void read_header();
  void check_lengths() const;  // they fill the .bin with tokens of the type, and the offsets follow from them
  void check_documents() const;
  FileValues<std::int32_t> lengths() const;     // of sequences, in tokens
  FileValues<std::int64_t> offsets() const;     // of sequences, in bytes
  FileValues<std::int64_t> boundaries() const;  // first sequences of documents
  std::size_t offsets_begin() const;            // in bytes
  std::size_t boundaries_begin() const;

  InputFile file_;
  std::string bin_;
  std::int64_t bin_bytes_;
  const megatron::Type* type_ = nullptr;
  std::int64_t sequences_ = 0, boundaries_ = 0;
};

}  // namespace lyceum
