#include <boost/algorithm/string/join.hpp>
#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "apps/options.h"
#include "apps/output.h"
#include "apps/tokenize_merge.h"
#include "apps/written_files.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/printable.h"
#include "io/data/encoding/chat.h"
#include "io/data/encoding/encoding.h"
#include "io/data/encoding/tokenizer_training.h"
#include "io/data/records/corpus_files.h"
#include "io/data/tokenizer/tokenizer.h"
#include "io/files/sha256.h"
#include "io/text/console.h"
#include "io/text/table.h"

namespace lyceum {

namespace {

namespace po = boost::program_options;

constexpr int most_threads = 4096;

struct Options {
  std::vector<std::string> input, merge;
  std::string model, tokenizer, output, valid, chat, json_key = "text";
  std::int64_t vocab = 4096;
  double valid_fraction = 0.05, sample_mb = 8, max_mb = 0, max_document_mb = 64, save_every = 10;
  std::uint64_t seed = 1;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool retrain = false, help = false;
  bool vocab_given = false, json_key_given = false, valid_fraction_given = false;
  std::string not_merged;  // an option that was given, but has no effect with --merge

  const std::string& tokenizer_file() const { return tokenizer.empty() ? model : tokenizer; }
};

po::options_description bind(Options& options) {
  const auto with_default = []<class T>(T& value) { return po::value(&value)->default_value(value); };
  const auto number = [](double& value) { return po::value(&value)->default_value(value, fmt::format("{}", value)); };
  po::options_description described;
  auto add = described.add_options();
  add("input", po::value(&options.input)->multitoken()->composing()->value_name("PATH"),
      "UTF-8 text file, or folder of such files; may be repeated. Each file is a document, or each line of .jsonl, "
      ".ndjson, .jsonlines and .ldjson files; any may be compressed with gzip or zstd. Links are followed");
  add("json-key", with_default(options.json_key)->value_name("KEY"),
      "field of a line that contains the text; if given, every file has one document per line, whatever its name");
  add("chat", po::value(&options.chat)->value_name("TEMPLATE"),
      "lines of every file contain chats, and only the assistant's tokens are trained: chatml, llama3, deepseek or "
      "plain; a SentencePiece model that is trained gets the template's tokens");
  add("tokenizer", po::value(&options.tokenizer)->value_name("FILE"),
      "SentencePiece model, or tokenizer.json of Hugging Face's tokenizers");
  add("model", po::value(&options.model)->value_name("FILE"),
      "instead of --tokenizer: SentencePiece model, used if it exists, else trained on the input");
  add("output", po::value(&options.output)->value_name("PREFIX"), "write PREFIX.bin, PREFIX.idx and PREFIX.json");
  add("valid", po::value(&options.valid)->value_name("PREFIX"), "the same for held-out documents");
  add("valid-fraction", number(options.valid_fraction)->value_name("X"), "share of the text to hold out for --valid");
  add("merge", po::value(&options.merge)->multitoken()->composing()->value_name("PREFIX"),
      "instead of --input: token files to write to --output, one after the other; @FILE names a file with one PREFIX a "
      "line");
  add("vocab", with_default(options.vocab)->value_name("N"), "vocabulary size of a model to train");
  add("sample-mb", number(options.sample_mb)->value_name("X"), "megabytes of text to train a model on");
  add("max-mb", number(options.max_mb)->value_name("X"),
      "megabytes to read: from a uniform sample of text files, from the beginning of other files; 0: all");
  add("max-document-mb", number(options.max_document_mb)->value_name("X"),
      "largest text, in megabytes, that is encoded without being cut into parts; longer records are skipped");
  add("seed", with_default(options.seed)->value_name("N"), "seed of all random choices");
  add("threads", with_default(options.threads)->value_name("N"), "threads that encode");
  add("save-every", number(options.save_every)->value_name("SECONDS"),
      "seconds between saves of the progress; the same command resumes from there");
  add("retrain", po::bool_switch(&options.retrain), "train the model even if it exists");
  return described;
}

Options parse(const Arguments& arguments) {
  Options options;
  po::options_description described = bind(options);
  described.add_options()("help", po::bool_switch(&options.help));
  po::variables_map values;
  try {
    const auto style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    // No positional words are allowed, so that a forgotten `--input` is reported.
    po::store(po::command_line_parser(arguments).options(described).style(style).positional({}).run(), values);
    po::notify(values);
  } catch (const po::error& problem) {
    fail(ExitCode::usage, "{}; `lyceum tokenize --help` lists the options", problem.what());
  }
  options.vocab_given = !values["vocab"].defaulted();
  options.json_key_given = !values["json-key"].defaulted();
  options.valid_fraction_given = !values["valid-fraction"].defaulted();
  for (const auto& [name, value] : values) {
    if (!value.defaulted() && name != "merge" && name != "output") options.not_merged = name;
  }
  return options;
}

/// Throws a usage Error if a prefix names a folder, in which the files would have no names.
void require_name(const char* option, const std::string& prefix) {
  const std::string name = std::filesystem::path(prefix).filename();
  require_usage(prefix.empty() || !(name.empty() || name == "." || name == ".."),
                "{} {} is a folder: add the name of the token files, as in {}", option, prefix,
                (std::filesystem::path(prefix) / "train").string());
}

void check(const Options& options) {
  require_name("--output", options.output);
  require_name("--valid", options.valid);
  if (!options.merge.empty()) {
    require_usage(!options.output.empty(), "--output is missing; `lyceum tokenize --help` lists the options");
    require_usage(options.not_merged.empty(), "--{} has no effect with --merge, which only copies tokens: omit it",
                  options.not_merged);
    return;
  }
  for (const auto& [missing, name] : {std::pair{options.input.empty(), "--input"},
                                      {options.tokenizer_file().empty(), "--tokenizer or --model"},
                                      {options.output.empty(), "--output"}}) {
    require_usage(!missing, "{} is missing; `lyceum tokenize --help` lists the options", name);
  }
  require_usage(
      options.tokenizer.empty() || (options.model.empty() && !options.retrain && !options.vocab_given),
      "--tokenizer names an existing tokenizer, but --model, --vocab and --retrain train one: use one or the other");
  require_usage(options.chat.empty() || !options.json_key_given,
                "--json-key {} with --chat: chats are read from \"messages\" or \"prompt\"; omit --json-key",
                options.json_key);
  require_usage(options.valid_fraction > 0 && options.valid_fraction < 1,
                "--valid-fraction {} is not between 0 and 1; omit --valid to hold nothing out", options.valid_fraction);
  require_usage(!options.valid.empty() || !options.valid_fraction_given,
                "--valid-fraction {} holds nothing out without --valid PREFIX", options.valid_fraction);
  require_usage(options.max_mb >= 0, "--max-mb {} is negative", options.max_mb);
  require_usage(options.max_document_mb >= 17 && options.max_document_mb <= 2000,
                "--max-document-mb {} is not between 17, the size of a part, and 2000", options.max_document_mb);
  require_usage(options.save_every >= 0, "--save-every {} is negative", options.save_every);
  require_usage(options.sample_mb > 0, "--sample-mb {} is not positive", options.sample_mb);
  require_usage(options.threads > 0 && options.threads <= most_threads, "--threads {} is not between 1 and {}",
                options.threads, most_threads);
}

std::int64_t megabytes(double count) { return static_cast<std::int64_t>(count * 1e6); }

/// True if the command trains the tokenizer.
bool trains_tokenizer(const Options& options) {
  std::error_code ignored;  // a path that cannot be examined is reported when the tokenizer is opened
  const auto type = std::filesystem::status(options.tokenizer_file(), ignored).type();
  return options.tokenizer.empty() && (options.retrain || type == std::filesystem::file_type::not_found);
}

/// Throws a usage Error if an output would replace a file that is read, or another output.
void check_outputs(const Options& options, const std::vector<CorpusItem>& files) {
  std::vector<WrittenFile> written;
  for (const auto& [option, prefix] : {std::pair{"--output", &options.output}, std::pair{"--valid", &options.valid}}) {
    if (prefix->empty()) continue;
    for (std::filesystem::path& file : files_of_tokens(*prefix)) written.push_back({option, std::move(file)});
  }
  std::vector<std::filesystem::path> read(options.input.begin(), options.input.end());
  for (const CorpusItem& item : files) read.push_back(item.document.file);
  if (trains_tokenizer(options)) {
    written.push_back({"--model", options.model});
  } else {
    read.emplace_back(options.tokenizer_file());
  }
  require_harmless(written, read);
}

Tokenizer tokenizer_for(const Options& options, const std::vector<CorpusItem>& files, const ChatTemplate* chat) {
  const std::string& file = options.tokenizer_file();
  const bool trains = trains_tokenizer(options);
  const auto begin = Clock::now();
  if (trains) {
    train_tokenizer({.files = files,
                     .json_key = options.json_key,
                     .chat = chat,
                     .model = file,
                     .vocab = options.vocab,
                     .sample_bytes = megabytes(options.sample_mb),
                     .seed = options.seed});
  }
  Tokenizer tokenizer(file);
  require_usage(!options.vocab_given || tokenizer.vocab() == options.vocab,
                "{} has a vocabulary of {}, not {}: add --retrain, or omit --vocab", file, tokenizer.vocab(),
                options.vocab);
  const std::string origin = trains ? fmt::format("trained in {:.1f} s", seconds_since(begin)) : "existing";
  print(fmt::format("tokenizer  {}  {} tokens, {}\n", file, tokenizer.vocab(), origin));
  return tokenizer;
}

/// Returns a function that reports progress, speed and remaining time: one line that is updated on a terminal, else one
/// line per minute.
std::function<void(const EncodingProgress&)> shown_progress() {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const double every = terminal ? 0.5 : 60;
  struct Shown {
    Clock::time_point begin = Clock::now(), last = begin;
    std::int64_t first = -1;  // bytes that an earlier run had encoded
  };
  return [=, shown = Shown()](const EncodingProgress& progress) mutable {
    if (shown.first < 0) shown.first = progress.done;
    const bool ends = progress.done >= progress.total;
    if (terminal && ends) fmt::print(stderr, "\r\033[K");
    if (ends || seconds_since(shown.last) < every) return;
    shown.last = Clock::now();
    const double seconds = seconds_since(shown.begin);
    const double left = static_cast<double>(progress.total - progress.done) /
                        std::max(1.0, static_cast<double>(progress.done - shown.first)) * seconds;
    fmt::print(stderr, "{}encoding {:3} %, {:.1f} MB/s, ETA {}{}", terminal ? "\r\033[K" : "",
               100 * progress.done / progress.total, static_cast<double>(progress.text) / 1e6 / seconds,
               human_duration(left), terminal ? "" : "\n");
    std::fflush(stderr);
  };
}

void print_size(const std::string& prefix, const EncodedSize& size) {
  print(fmt::format("{:>10} {:>14} {:>14} {:>12.3f}  {}\n", size.documents, size.bytes, size.tokens,
                    static_cast<double>(size.bytes) / static_cast<double>(size.tokens), prefix));
}

/// Names the first file, and how many more there are.
std::string first_of(const std::vector<std::filesystem::path>& files) {
  const std::string others = files.size() > 1 ? fmt::format(" and {} more", files.size() - 1) : "";
  return printable(files[0].native()) + others;
}

/// Returns the files to encode: all that are found, but for an existing tokenizer, which may be in the same folder.
CorpusFiles files_to_encode(const Options& options) {
  CorpusFiles found = find_corpus_files(options.input, options.json_key_given || !options.chat.empty());
  if (trains_tokenizer(options)) return found;
  const auto is_tokenizer = [&](const std::filesystem::path& file) {
    std::error_code ignored;  // a missing tokenizer is reported when it is opened
    return std::filesystem::equivalent(file, options.tokenizer_file(), ignored);
  };
  std::erase_if(found.texts_like_records, is_tokenizer);
  std::erase_if(found.texts_like_lists, is_tokenizer);
  std::erase_if(found.files, [&](const CorpusItem& item) {
    if (!is_tokenizer(item.document.file)) return false;
    found.skipped.add("the tokenizer", item.document.file.native());
    return true;
  });
  return found;
}

/// Warns of files with JSON that are read as text.
void warn_of_json(const CorpusFiles& found) {
  if (!found.texts_like_records.empty()) {
    fmt::print(stderr,
               "warning: {}: read as text although the first line is a JSON object; --json-key KEY reads each line as "
               "a record\n",
               first_of(found.texts_like_records));
  }
  if (!found.texts_like_lists.empty()) {
    fmt::print(stderr,
               "warning: {}: read as text although it is a JSON array of objects; `jq -c '.[]' FILE > FILE.jsonl` "
               "makes one record per line of it\n",
               first_of(found.texts_like_lists));
  }
}

void tokenize(const Options& options) {
  const CorpusFiles found = files_to_encode(options);
  require_input(!found.files.empty(), "no UTF-8 text file under {}{}{}", boost::algorithm::join(options.input, ", "),
                found.skipped.count() > 0 ? "; skipped " : "", found.skipped.text());
  check_outputs(options, found.files);
  warn_of_json(found);
  const ChatTemplate* const chat = options.chat.empty() ? nullptr : &chat_template(options.chat);
  const Tokenizer tokenizer = tokenizer_for(options, found.files, chat);
  if (chat) require_template_tokens(*chat, tokenizer, options.tokenizer_file());
  const CorpusChoice choice{.most_bytes = megabytes(options.max_mb),
                            .valid_fraction = options.valid.empty() ? 0 : options.valid_fraction,
                            .seed = options.seed};
  const Encoding encoding{.items = choose_items(found.files, choice),
                          .json_key = options.json_key,
                          .chat = chat,
                          .train = options.output,
                          .valid = options.valid,
                          .valid_fraction = choice.valid_fraction,
                          .seed = options.seed,
                          .threads = options.threads,
                          .tokenizer = std::filesystem::path(options.tokenizer_file()).filename(),
                          .tokenizer_sha256 = digest_of_file(options.tokenizer_file()).sha256,
                          .batches = {.document = static_cast<std::size_t>(megabytes(options.max_document_mb))},
                          .save_seconds = options.save_every,
                          .progress = shown_progress()};
  if (resumes(tokenizer, encoding)) print("resuming where the same command was interrupted\n");
  std::fflush(stdout);
  const auto begin = Clock::now();
  const EncodingResult result = encode_corpus(tokenizer, encoding);
  const double seconds = seconds_since(begin);
  print(" documents          bytes         tokens  bytes/token  prefix\n");
  print_size(options.output, result.train);
  if (!options.valid.empty()) print_size(options.valid, result.valid);
  if (chat) {
    print(fmt::format("trained on {} of {} tokens of {}\n", result.train.trained, result.train.tokens, options.output));
  }
  const std::int64_t encoded = result.train.bytes + result.valid.bytes - result.resumed_text;
  print(fmt::format("encoded {} in {}, {} per second\n", text_of_bytes(encoded),
                    seconds < 1 ? fmt::format("{:.0f} ms", 1e3 * seconds) : fmt::format("{:.1f} s", seconds),
                    text_of_bytes(static_cast<std::int64_t>(static_cast<double>(encoded) / seconds))));
  for (const auto& [skipped, what] : {std::pair{&found.skipped, "file"}, std::pair{&result.skipped, "record"}}) {
    if (skipped->count() > 0)
      print(fmt::format("skipped {}: {}\n", count_text(skipped->count(), what), skipped->text()));
  }
  if (result.replaced.bytes > 0) print(fmt::format("encoded as U+FFFD: {}\n", result.replaced.text()));
}

}  // namespace

CommandHelp tokenize_help() {
  Options defaults;
  return describe_command(
      "lyceum tokenize --input PATH [--input PATH …] --tokenizer FILE --output PREFIX [--valid PREFIX]",
      "Encodes text files and JSON lines, with an end-of-document token after each document, and writes them as\n"
      "Megatron .bin/.idx. With --model instead of --tokenizer it first trains a SentencePiece BPE model unless "
      "that file exists.\n"
      "lyceum tokenize --merge PREFIX [PREFIX …] --output PREFIX joins token files of one tokenizer.",
      bind(defaults));
}

int tokenize_command(const Arguments& arguments) {
  const Options options = parse(arguments);
  if (options.help) {
    print(tokenize_help().text);
    return static_cast<int>(ExitCode::done);
  }
  check(options);
  if (options.merge.empty()) {
    tokenize(options);
  } else {
    merge_sources(options.merge, options.output);
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace lyceum
