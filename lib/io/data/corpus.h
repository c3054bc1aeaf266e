#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/tokenizer.h"

namespace lyceum {

/// A text that becomes one document of a token file: a file, or a part of one.
struct TextDocument {
  std::filesystem::path file;
  std::int64_t begin = 0, bytes = 0;
  bool operator==(const TextDocument&) const = default;
};

/// Each file whole. Throws a bad_input Error for one that is not there.
std::vector<TextDocument> whole_documents(std::span<const std::filesystem::path> files);

std::int64_t bytes_of(std::span<const TextDocument> documents);

struct DocumentChoice {
  std::vector<TextDocument> chosen, rest;  // each in the order given
};
/// Chooses whole documents, by (seed, purpose, path), that hold at most `bytes` together. When they hold less than half
/// of it, because documents are few or large, the largest one left is cut at a line and its end is chosen too.
DocumentChoice choose_documents(std::vector<TextDocument> documents, std::int64_t bytes, std::uint64_t seed,
                                std::string_view purpose);

struct EncodedSize {
  std::int64_t documents = 0, bytes = 0, tokens = 0;
};
/// Writes the token file `prefix`: every document in order, an end-of-document token after each. The result does not
/// depend on `threads`. `progress` is told the bytes done, by one thread at a time.
EncodedSize encode_documents(const Tokenizer& tokenizer, std::span<const TextDocument> documents,
                             const std::string& prefix, int threads,
                             const std::function<void(std::int64_t)>& progress = {});

}  // namespace lyceum
