#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/data/records/corpus.h"
#include "io/data/records/skipped.h"

namespace lyceum {

/// The result of find_corpus_files().
struct CorpusFiles {
  std::vector<CorpusItem> files;  // one item per file, sorted by path
  Skipped skipped;
  std::vector<std::filesystem::path> texts_like_records;  // plain texts whose first line is a JSON object
  std::vector<std::filesystem::path> texts_like_lists;    // plain texts that begin like a JSON array of objects
};

/// Finds all files under `roots` (files or folders) that, once uncompressed, look like UTF-8 text. If `all_records` is
/// true, each of them has one record per line, whatever its name.
///
/// - Symbolic links are followed. The name of the link, not of its target, determines the format.
/// - A folder is searched once.
/// - A file with several names is read once. Names whose ending names a format take precedence over others, then the
///   file's own name over links, then the first in the order of paths.
/// - Files and folders below a root whose names begin with a dot are left out, and so is what `lyceum tokenize` writes,
///   in any folder.
/// - Everything that is left out is counted in `skipped`.
///
/// Throws a bad_input Error if a root does not exist or is neither a file nor a folder, or if a file cannot be read;
/// and a usage Error for the root "-" (standard input).
CorpusFiles find_corpus_files(std::span<const std::string> roots, bool all_records);

}  // namespace lyceum
