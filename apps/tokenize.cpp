#include <boost/algorithm/string/join.hpp>
#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "apps/options.h"
#include "core/clock.h"
#include "core/error.h"
#include "io/data/corpus.h"
#include "io/data/token_data.h"
#include "io/data/tokenizer.h"
#include "io/files/sha256.h"

namespace lyceum {

namespace {

namespace po = boost::program_options;

struct Options {
  std::vector<std::string> input;
  std::string model, output, valid;
  std::int64_t vocab = 4096;
  double valid_fraction = 0.05, sample_mb = 8, max_mb = 0;
  std::uint64_t seed = 1;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool retrain = false, help = false;
  bool vocab_given = false;
};

po::options_description bind(Options& options) {
  const auto with_default = []<class T>(T& value) { return po::value(&value)->default_value(value); };
  const auto number = [](double& value) { return po::value(&value)->default_value(value, fmt::format("{}", value)); };
  po::options_description described;
  auto add = described.add_options();
  add("input", po::value(&options.input)->multitoken()->composing()->value_name("PATH"),
      "a text file, or a folder: all UTF-8 text files below it; several may be given");
  add("model", po::value(&options.model)->value_name("FILE"),
      "SentencePiece model; used when it exists, else trained on the input");
  add("output", po::value(&options.output)->value_name("PREFIX"), "writes PREFIX.bin, PREFIX.idx and PREFIX.json");
  add("valid", po::value(&options.valid)->value_name("PREFIX"), "the same for documents held out from --output");
  add("valid-fraction", number(options.valid_fraction)->value_name("X"), "share of the bytes that --valid receives");
  add("vocab", with_default(options.vocab)->value_name("N"), "tokens of a model that is trained");
  add("sample-mb", number(options.sample_mb)->value_name("X"), "megabytes that a model is trained on");
  add("max-mb", number(options.max_mb)->value_name("X"), "megabytes encoded, from evenly chosen files; 0: all");
  add("seed", with_default(options.seed)->value_name("N"), "of every random choice");
  add("threads", with_default(options.threads)->value_name("N"), "that encode");
  add("retrain", po::bool_switch(&options.retrain), "train the model even when it exists");
  return described;
}

Options parse(const Arguments& arguments) {
  Options options;
  po::options_description described = bind(options);
  described.add_options()("help", po::bool_switch(&options.help));
  po::variables_map values;
  try {
    const auto style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    // No positional words: a forgotten `--input` is told, not guessed.
    po::store(po::command_line_parser(arguments).options(described).style(style).positional({}).run(), values);
    po::notify(values);
  } catch (const po::error& problem) {
    fail(ExitCode::usage, "{}; `lyceum tokenize --help` lists the options", problem.what());
  }
  options.vocab_given = !values["vocab"].defaulted();
  return options;
}

void check(const Options& options) {
  for (const auto& [missing, name] : {std::pair{options.input.empty(), "--input"},
                                      {options.model.empty(), "--model"},
                                      {options.output.empty(), "--output"}}) {
    require_usage(!missing, "{} is missing; `lyceum tokenize --help` lists the options", name);
  }
  require_usage(options.valid_fraction > 0 && options.valid_fraction < 1,
                "--valid-fraction {} is not between 0 and 1; leave --valid away to hold nothing out",
                options.valid_fraction);
  require_usage(options.valid != options.output, "--valid and --output are both {}", options.output);
  require_usage(options.max_mb >= 0, "--max-mb {} is negative", options.max_mb);
  require_usage(options.sample_mb > 0, "--sample-mb {} is not positive", options.sample_mb);
  require_usage(options.threads > 0, "--threads {} is not positive", options.threads);
}

std::int64_t megabytes(double count) { return static_cast<std::int64_t>(count * 1e6); }

Tokenizer tokenizer_for(const Options& options, const std::vector<TextDocument>& documents) {
  const bool exists = std::filesystem::exists(options.model);
  const auto begin = Clock::now();
  if (!exists || options.retrain) {
    std::vector<std::filesystem::path> files;
    for (const TextDocument& document : documents) {
      if (files.empty() || files.back() != document.file) files.push_back(document.file);
    }
    train_tokenizer({.files = files,
                     .model = options.model,
                     .vocab = options.vocab,
                     .sample_bytes = megabytes(options.sample_mb),
                     .seed = options.seed});
  }
  Tokenizer tokenizer(options.model);
  require_usage(!options.vocab_given || tokenizer.vocab() == options.vocab,
                "{} has a vocabulary of {}, not {}: add --retrain, or leave --vocab away", options.model,
                tokenizer.vocab(), options.vocab);
  const std::string origin =
      exists && !options.retrain ? "as it was" : fmt::format("trained in {:.1f} s", seconds_since(begin));
  fmt::print("tokenizer  {}  {} tokens, {}\n", options.model, tokenizer.vocab(), origin);
  std::fflush(stdout);
  return tokenizer;
}

/// A line that counts up while documents are encoded; on a terminal only.
std::function<void(std::int64_t)> progress_to(std::int64_t total) {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [total, shown = std::int64_t{-1}](std::int64_t done) mutable {
    const std::int64_t percent = 100 * done / std::max<std::int64_t>(1, total);
    if (percent == shown) return;
    shown = percent;
    fmt::print(stderr, "{}", percent < 100 ? fmt::format("\rencoding {:3} %", percent) : "\r              \r");
    std::fflush(stderr);
  };
}

void encode(const Options& options, const Tokenizer& tokenizer, const std::string& model_sha256,
            const std::vector<TextDocument>& documents, const std::string& prefix) {
  const auto begin = Clock::now();
  // Token files without their description can be read, an old description beside new ones would be believed.
  std::error_code ignored;
  std::filesystem::remove(prefix + ".json", ignored);
  const EncodedSize size =
      encode_documents(tokenizer, documents, prefix, options.threads, progress_to(bytes_of(documents)));
  write_token_meta(prefix, {.bytes = size.bytes,
                            .documents = size.documents,
                            .tokens = size.tokens,
                            .vocab = tokenizer.vocab(),
                            .tokenizer = std::filesystem::path(options.model).filename(),
                            .tokenizer_sha256 = model_sha256});
  fmt::print("{:>10} {:>14} {:>14} {:>12.3f} {:>8.1f}  {}\n", size.documents, size.bytes, size.tokens,
             static_cast<double>(size.bytes) / static_cast<double>(size.tokens), seconds_since(begin), prefix);
  std::fflush(stdout);
}

void tokenize(const Options& options) {
  std::vector<TextDocument> train = whole_documents(find_text_files(options.input));
  require_input(!train.empty(), "no UTF-8 text file under {}", boost::algorithm::join(options.input, ", "));
  const std::int64_t most = megabytes(options.max_mb);
  if (most > 0 && bytes_of(train) > most) train = choose_documents(train, most, options.seed, "corpus").chosen;
  const Tokenizer tokenizer = tokenizer_for(options, train);
  const std::string sha256 = digest_of_file(options.model).sha256;
  std::vector<TextDocument> valid;
  if (!options.valid.empty()) {
    const auto wanted = static_cast<std::int64_t>(options.valid_fraction * static_cast<double>(bytes_of(train)));
    DocumentChoice choice = choose_documents(std::move(train), wanted, options.seed, "valid");
    train = std::move(choice.rest);
    valid = std::move(choice.chosen);
    require_input(!train.empty() && !valid.empty(),
                  "{} bytes of text are too few to hold out {}; add text, or leave --valid away",
                  bytes_of(train) + bytes_of(valid), wanted);
  }
  fmt::print(" documents          bytes         tokens  bytes/token  seconds  prefix\n");
  encode(options, tokenizer, sha256, train, options.output);
  if (!valid.empty()) encode(options, tokenizer, sha256, valid, options.valid);
}

}  // namespace

CommandHelp tokenize_help() {
  Options defaults;
  return describe_command(
      "lyceum tokenize --input PATH [--input PATH …] --model FILE --output PREFIX [--valid PREFIX]",
      "Trains a SentencePiece BPE model unless it exists, encodes text files (one document each, an end-of-document\n"
      "token after it) and writes them as Megatron .bin/.idx.",
      bind(defaults));
}

int tokenize_command(const Arguments& arguments) {
  const Options options = parse(arguments);
  if (options.help) {
    fmt::print("{}", tokenize_help().text);
    return static_cast<int>(ExitCode::done);
  }
  check(options);
  tokenize(options);
  return static_cast<int>(ExitCode::done);
}

}  // namespace lyceum
