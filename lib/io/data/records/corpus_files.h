#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/data/records/corpus.h"
#include "io/data/records/skipped.h"

namespace lyceum {

struct CorpusFiles {
  std::vector<CorpusItem> files;  // whole, sorted by path
  Skipped skipped;
  std::vector<std::filesystem::path> like_records;  // texts whose first line is a JSON object
};

/// Finds the files under every argument (a file or a folder) that look like UTF-8 text once they are uncompressed.
/// `all_records`: each of them has one record per line, whatever its name.
///
/// Links are followed, and the name that was given or found decides, not that of a link's target. A file that has
/// several names is read once, under the first of them whose ending names a format, else under its own, else under the
/// first; a folder is searched once. Files and folders below an argument whose names begin with a dot are left out.
/// What is left out is counted in `skipped`. An argument that does not exist, or is neither a file nor a folder, is a
/// bad_input Error.
CorpusFiles find_corpus_files(std::span<const std::string> roots, bool all_records);

}  // namespace lyceum
