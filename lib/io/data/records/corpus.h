#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/records/corpus_item.h"

namespace lyceum {

/// Returns the sum of the sizes of the documents, in bytes.
std::int64_t total_bytes(std::span<const TextDocument> documents);

/// The result of choose_documents().
struct DocumentChoice {
  /// Both in the order of the input. If a document was cut, its beginning is in `rest`, and its end is the last element
  /// of `chosen`.
  std::vector<TextDocument> chosen, rest;
};
/// Chooses random whole documents with at most `bytes` bytes in total. The choice depends only on the documents, (seed,
/// purpose) and their paths. If they hold less than half of `bytes`, because documents are few or large, the largest
/// remaining document is cut after a line, and its end is chosen in addition.
DocumentChoice choose_documents(std::vector<TextDocument> documents, std::int64_t bytes, std::uint64_t seed,
                                std::string_view purpose);

/// How much of a corpus to read, and how much of that to hold out for validation.
struct CorpusChoice {
  /// Approximate number of bytes of text to read, uncompressed. They are divided among the files in proportion to the
  /// sizes of the files as stored. 0: all.
  std::int64_t most_bytes = 0;
  double valid_fraction = 0;  // share of the bytes to hold out; 0: none
  std::uint64_t seed = 1;
};
/// Divides whole files into the items to read:
/// 1. Texts that are not compressed: choose_documents() chooses whole documents. Those for training come first, then
///    those that are held out.
/// 2. All other files: text from the beginning of each is read, and a random draw decides for each record whether it is
///    held out.
/// Throws a bad_input Error if the texts are too few to hold some out.
std::vector<CorpusItem> choose_items(std::vector<CorpusItem> files, const CorpusChoice& choice);

}  // namespace lyceum
