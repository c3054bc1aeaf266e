#include "io/data/records/corpus.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "io/files/whole_file.h"

namespace lyceum {

std::int64_t total_bytes(std::span<const TextDocument> documents) {
  return std::accumulate(documents.begin(), documents.end(), std::int64_t{0},
                         [](std::int64_t sum, const TextDocument& document) { return sum + document.bytes; });
}

namespace {

/// Removes approximately the last `wanted` bytes from a document and returns them as another document. The cut follows
/// the first newline within these bytes (of which 64 KiB are searched); without one, it is between two characters.
TextDocument cut_end(TextDocument& document, std::int64_t wanted) {
  constexpr std::int64_t searched = 1 << 16;
  const std::int64_t cut = document.bytes - wanted;
  const std::string text = read_part_of_file(document.file, document.begin + cut, std::min(wanted, searched));
  std::size_t skipped = text.find('\n') + 1;  // 0 if there is no newline, since npos + 1 is 0
  while (skipped < text.size() && (static_cast<unsigned char>(text[skipped]) & 0xC0u) == 0x80u) ++skipped;
  const std::int64_t kept = cut + static_cast<std::int64_t>(skipped);
  const TextDocument end{document.file, document.begin + kept, document.bytes - kept};
  document.bytes = kept;
  return end;
}

}  // namespace

DocumentChoice choose_documents(std::vector<TextDocument> documents, std::int64_t bytes, std::uint64_t seed,
                                std::string_view purpose) {
  const auto draw = [&](const TextDocument& document) {
    return Philox(seed, std::string(purpose) + "/" + document.file.native())
        .uniform(static_cast<std::uint64_t>(document.begin));
  };
  std::vector<std::pair<double, std::size_t>> draws;
  for (std::size_t i = 0; i < documents.size(); ++i) draws.emplace_back(draw(documents[i]), i);
  std::ranges::sort(draws);
  std::vector<bool> is_chosen(documents.size());
  std::int64_t sum = 0;
  for (const auto& [value, i] : draws) {
    if (documents[i].bytes > bytes - sum) continue;
    is_chosen[i] = true;
    sum += documents[i].bytes;
  }
  DocumentChoice choice;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    (is_chosen[i] ? choice.chosen : choice.rest).push_back(std::move(documents[i]));
  }
  if (2 * sum >= bytes || choice.rest.empty()) return choice;
  // Each remaining document did not fit, so it is larger than the bytes that are still missing.
  TextDocument end = cut_end(*std::ranges::max_element(choice.rest, {}, &TextDocument::bytes), bytes - sum);
  if (end.bytes > 0) choice.chosen.push_back(std::move(end));
  return choice;
}

namespace {

std::vector<CorpusItem> choose_texts(std::vector<TextDocument> documents, const CorpusChoice& choice,
                                     std::int64_t most_bytes) {
  if (choice.most_bytes > 0 && total_bytes(documents) > most_bytes) {
    documents = choose_documents(std::move(documents), most_bytes, choice.seed, "corpus").chosen;
  }
  std::vector<TextDocument> valid;
  if (choice.valid_fraction > 0 && !documents.empty()) {
    const auto wanted = static_cast<std::int64_t>(choice.valid_fraction * static_cast<double>(total_bytes(documents)));
    DocumentChoice held_out = choose_documents(std::move(documents), wanted, choice.seed, "valid");
    documents = std::move(held_out.rest);
    valid = std::move(held_out.chosen);
    require_input(!documents.empty() && !valid.empty(), "{} bytes of text are too few to hold out {}: add text",
                  total_bytes(documents) + total_bytes(valid), wanted);
  }
  std::vector<CorpusItem> items;
  for (TextDocument& document : documents) items.push_back({.document = std::move(document)});
  for (TextDocument& document : valid) {
    items.push_back({.document = std::move(document), .output = CorpusItem::Output::valid});
  }
  return items;
}

}  // namespace

std::vector<CorpusItem> choose_items(std::vector<CorpusItem> files, const CorpusChoice& choice) {
  double all_bytes = 0;
  std::vector<TextDocument> texts;
  std::unordered_map<std::string, std::int64_t> modified;
  for (const CorpusItem& file : files) {
    all_bytes += static_cast<double>(file.document.bytes);
    if (!file.is_plain()) continue;
    texts.push_back(file.document);
    modified[file.document.file.native()] = file.modified;
  }
  const double share = static_cast<double>(choice.most_bytes) / std::max(1.0, all_bytes);
  const auto share_of = [&](std::int64_t bytes) {
    return static_cast<std::int64_t>(share * static_cast<double>(bytes));
  };
  const std::int64_t most_of_texts = share_of(total_bytes(texts));
  std::vector<CorpusItem> items = choose_texts(std::move(texts), choice, most_of_texts);
  for (CorpusItem& item : items) item.modified = modified.at(item.document.file.native());
  for (CorpusItem& file : files) {
    if (file.is_plain()) continue;
    if (choice.valid_fraction > 0) file.output = CorpusItem::Output::drawn;
    if (choice.most_bytes > 0) file.most_bytes = std::max<std::int64_t>(1, share_of(file.document.bytes));
    items.push_back(std::move(file));
  }
  return items;
}

}  // namespace lyceum
