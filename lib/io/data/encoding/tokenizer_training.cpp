#include "io/data/encoding/tokenizer_training.h"

#include <sentencepiece_trainer.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "io/data/records/corpus_reader.h"
#include "io/files/whole_file.h"
#include "io/text/utf8.h"
#include "io/text/words.h"

namespace lyceum {

namespace {

constexpr std::string_view trainer_space = "\xE2\x96\x81",
                           trainer_unknown = "\xE2\x96\x85";  // characters that the trainer reserves
constexpr std::size_t longest_word = 128;                     // bytes; longer words are data rather than language
constexpr std::size_t many_words = 20000;                     // above this count, words that occur once only cost time

/// True if a word is passed to the trainer: valid UTF-8, not too long, and without characters that the trainer
/// reserves.
bool is_trainable_word(std::string_view word) {
  if (word.size() > longest_word || word.find('\0') != std::string_view::npos) return false;
  if (word.find(trainer_space) != std::string_view::npos || word.find(trainer_unknown) != std::string_view::npos)
    return false;
  if (word.front() == '\n' || word.front() == '\t') return false;  // these are user-defined symbols
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t length = utf8_length(word, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

using WordCounts = std::unordered_map<std::string, std::int64_t>;

void count_words(WordCounts& counts, std::string_view text) {
  std::string word;
  for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
    end = end_of_word(text, at);
    word.assign(text.substr(at, end - at));
    if (is_trainable_word(word)) ++counts[word];
  }
}

/// Counts the words of `taken` bytes of a file of `size` bytes, beginning at byte `first`.
void count_in_part(WordCounts& counts, const std::filesystem::path& file, std::int64_t size, std::int64_t taken,
                   std::int64_t first) {
  const std::string bytes = read_part_of_file(file, first, std::min(taken, size - first));
  std::string_view text = bytes;
  // The first line is incomplete unless `first` is 0 or the file has only one line.
  const std::size_t newline = text.find('\n');
  if (first > 0 && newline != std::string_view::npos) text.remove_prefix(newline + 1);
  count_words(counts, text);
}

/// Counts the words at the beginning of a file that is not a plain text. Ignores records that cannot be read, which the
/// encoding reports.
void count_in_beginning(WordCounts& counts, CorpusItem item, std::int64_t taken, const TokenizerTraining& training) {
  item.most_bytes = std::max<std::int64_t>(1, taken);
  const std::vector<CorpusItem> items{std::move(item)};
  CorpusReader reader(
      items, {}, {.text_key = training.json_key, .chats = training.chat != nullptr, .cut = [](std::string_view text) {
                    return text.size();
                  }});
  const auto take = [&](const Record& record) {
    if (!training.chat) return count_words(counts, record.text);
    try {
      for (const ChatSegment& segment : rendered(record.messages, *training.chat)) count_words(counts, segment.text);
    } catch (const Error&) {  // the template does not have the message's role
    }
  };
  const RecordSink sink{.take = take, .skip = [](std::int64_t, const std::string&) {}};
  while (const std::optional<CorpusBatch> batch = reader.next()) batch->records.read(sink);
}

/// Counts the words in the same share of every file.
WordCounts sample_words(const TokenizerTraining& training) {
  double total = 0;
  for (const CorpusItem& file : training.files) total += static_cast<double>(file.document.bytes);
  const double share = std::min(1.0, static_cast<double>(training.sample_bytes) / std::max(1.0, total));
  const Philox random(training.seed, "tokenizer/sample");
  WordCounts counts;
  for (std::size_t i = 0; i < training.files.size(); ++i) {
    const CorpusItem& file = training.files[i];
    const std::int64_t size = file.document.bytes;
    const auto taken = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(size)));
    if (file.is_plain()) {
      const auto first = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(size - taken) + 1, i));
      count_in_part(counts, file.document.file, size, taken, first);
    } else {
      count_in_beginning(counts, file, taken, training);
    }
  }
  if (counts.size() > many_words) std::erase_if(counts, [](const auto& entry) { return entry.second == 1; });
  return counts;
}

/// Returns lines "word<tab>count", sorted, so that the trainer's input does not depend on the order of the hash table.
std::vector<std::string> sorted_lines(const WordCounts& counts) {
  std::vector<std::string> lines;
  lines.reserve(counts.size());
  for (const auto& [word, count] : counts) lines.push_back(word + '\t' + std::to_string(count));
  std::sort(lines.begin(), lines.end());
  return lines;
}

/// Passes the lines to the trainer.
class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  std::size_t at_ = 0;
};

/// Returns the user-defined symbols, at which texts are always split: the tokens of the chat template, and sequences of
/// 1 to 8 newlines or tabs. The trainer cannot learn the latter, since newlines and tabs delimit the sentences of its
/// input.
std::string symbols_of(const ChatTemplate* chat) {
  std::string symbols;
  if (chat) {
    for (const std::string_view token : chat->tokens) symbols.append(symbols.empty() ? "" : ",").append(token);
  }
  for (const char c : {'\n', '\t'}) {
    for (std::size_t length = 1; length <= 8; ++length) {
      if (!symbols.empty()) symbols += ',';
      symbols.append(length, c);
    }
  }
  return symbols;
}

/// Returns the visible ASCII characters in the sample. They are required to become pieces even if they are rare. Others
/// must not be required, since the trainer terminates the process if a required character does not occur.
std::string ascii_in(const WordCounts& counts) {
  std::array<bool, 128> present{};
  for (const auto& [word, count] : counts) {
    for (const char c : word) {
      if (c > ' ' && c <= '~') present[static_cast<std::size_t>(c)] = true;
    }
  }
  std::string characters;
  for (char c = '!'; c <= '~'; ++c) {
    if (present[static_cast<std::size_t>(c)]) characters += c;
  }
  return characters;
}

}  // namespace

void train_tokenizer(const TokenizerTraining& training) {
  require_usage(training.vocab > 0, "the vocabulary of a tokenizer cannot have {} tokens: set a few thousand or more",
                training.vocab);
  require_usage(training.sample_bytes > 0, "a tokenizer cannot be trained on {} bytes: set a few million or more",
                training.sample_bytes);
  const WordCounts counts = sample_words(training);
  const std::vector<std::string> lines = sorted_lines(counts);
  require_input(!lines.empty(), "no text to train the tokenizer {} on in {} files", training.model.native(),
                training.files.size());
  Lines iterator(lines);
  std::string model;
  const std::unordered_map<std::string, std::string> options{
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(training.vocab)},
      {"num_threads", "1"},  // it is written into the model, and more threads would speed up only the reading
      {"byte_fallback", "true"},
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"allow_whitespace_only_pieces", "true"},
      {"input_format", "tsv"},
      {"split_by_unicode_script", "false"},
      {"split_by_number", "false"},
      {"max_sentencepiece_length", "24"},
      {"character_coverage", "0.9995"},
      {"required_chars", ascii_in(counts)},
      {"user_defined_symbols", symbols_of(training.chat)},
      {"unk_id", "0"},
      {"eos_id", "1"},
      {"bos_id", "-1"},
      {"pad_id", "-1"},
      {"eos_piece", "<|endoftext|>"},
      {"minloglevel", "2"},
  };
  const auto status = sentencepiece::SentencePieceTrainer::Train(options, &iterator, &model);
  require_input(status.ok(), "SentencePiece cannot train {} on {} different words: {}", training.model.native(),
                lines.size(), status.ToString());
  write_whole_file(training.model, model);
}

}  // namespace lyceum
