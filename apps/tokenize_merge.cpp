#include "apps/tokenize_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "apps/output.h"
#include "apps/written_files.h"
#include "core/error.h"
#include "io/data/tokens/data_sources.h"
#include "io/data/tokens/merge_tokens.h"
#include "io/data/tokens/source_list.h"
#include "io/text/table.h"

namespace lyceum {

namespace {

std::vector<std::string> prefixes_of(const std::vector<std::string>& sources) {
  std::vector<std::string> prefixes;
  for (const std::string& source : sources) {
    if (!source.starts_with('@')) {
      prefixes.push_back(source);
      continue;
    }
    const std::string listed = sources_of_file(source.substr(1));
    for (const auto& [prefix, weight] : data_sources("--merge", listed)) {
      require_usage(weight == 0,
                    "--merge {}: the sources have weights, but every document is written once: remove the "
                    "weights",
                    source);
      prefixes.push_back(prefix);
    }
  }
  return prefixes;
}

}  // namespace

void merge_sources(const std::vector<std::string>& sources, const std::string& output) {
  const std::vector<std::string> prefixes = prefixes_of(sources);
  std::vector<WrittenFile> written;
  for (std::filesystem::path& file : files_of_tokens(output)) written.push_back({"--output", std::move(file)});
  std::vector<std::filesystem::path> read;
  for (const std::string& prefix : prefixes) std::ranges::move(files_of_tokens(prefix), std::back_inserter(read));
  require_harmless(written, read);
  const MergedTokens merged = merge_tokens(prefixes, output);
  print(" documents         tokens  prefix\n");
  print(fmt::format("{:>10} {:>14}  {}\n", merged.documents, merged.tokens, output));
  if (merged.meta && merged.meta->trained) {
    print(fmt::format("trained on {} of {} tokens of {}\n", *merged.meta->trained, merged.tokens, output));
  }
  print(fmt::format("merged {}{}\n", count_text(std::ssize(prefixes), "source"),
                    merged.meta ? "" : "; none has a description, so their tokenizers were not compared"));
}

}  // namespace lyceum
