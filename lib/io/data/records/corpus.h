#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/records/corpus_item.h"

namespace lyceum {

std::int64_t bytes_of(std::span<const TextDocument> documents);

struct DocumentChoice {
  std::vector<TextDocument> chosen, rest;  // each in the order given
};
/// Chooses whole documents, by (seed, purpose, path), that hold at most `bytes` together. When they hold less than half
/// of it, because documents are few or large, the largest one left is cut at a line and its end is chosen too.
DocumentChoice choose_documents(std::vector<TextDocument> documents, std::int64_t bytes, std::uint64_t seed,
                                std::string_view purpose);

struct CorpusChoice {
  std::int64_t most_bytes = 0;  // that are read, about; 0: all
  double valid_fraction = 0;    // of the bytes; 0: nothing is held out
  std::uint64_t seed = 1;
};
/// What is read of whole files, those for training first. Of texts that are not compressed, whole documents are chosen
/// to the byte; of each other file as much is taken from its beginning, and what is held out is drawn record by record.
/// Throws a bad_input Error when the texts are too few to hold some out.
std::vector<CorpusItem> choose_items(std::vector<CorpusItem> files, const CorpusChoice& choice);

}  // namespace lyceum
