#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/data/corpus.h"
#include "io/data/skipped.h"

namespace lyceum {

struct CorpusFiles {
  std::vector<CorpusItem> files;  // whole, sorted by path
  Skipped skipped;
};

/// Which files have one record per line, by their names, which may end in .gz or .zst: .jsonl and .ndjson; with
/// `json` .json too.
bool holds_records(const std::filesystem::path& file, bool json);

/// Regular files that look like UTF-8 text once they are uncompressed, under every argument (a file or a folder); links
/// that leave or loop are skipped. A path that does not exist is a bad_input Error.
CorpusFiles find_corpus_files(std::span<const std::string> roots, bool json);

}  // namespace lyceum
