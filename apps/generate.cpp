#include <fmt/format.h>

#include <cmath>
#include <iostream>

#include "apps/options.h"
#include "apps/run_config.h"
#include "core/clock.h"
#include "core/error.h"
#include "io/data/data_sources.h"
#include "io/data/tokenizer.h"
#include "io/files/sha256.h"
#include "io/text/table.h"
#include "io/text/utf8.h"
#include "train/generator.h"
#include "train/optimizer.h"
#include "train/run_setup.h"

namespace lyceum {

namespace po = boost::program_options;

namespace {

struct GenerateOptions {
  std::string path, prompt;
  Sampling sampling;
  bool timing = false;
};

po::options_description described_options(GenerateOptions& options) {
  Sampling& sampling = options.sampling;
  po::options_description described;
  auto add = described.add_options();
  add("checkpoint", po::value(&options.path)->value_name("DIR"), "a checkpoint or the directory of a run");
  add("prompt", po::value(&options.prompt)->value_name("TEXT"), "text to continue; '': the model begins a document");
  add("tokens", po::value(&sampling.tokens)->value_name("N")->default_value(sampling.tokens),
      "largest number of tokens to generate");
  add("temperature", po::value(&sampling.temperature)->value_name("X")->default_value(sampling.temperature, "0.8"),
      "sampling temperature; 0: always the most likely token");
  add("top-k", po::value(&sampling.top_k)->value_name("K")->default_value(sampling.top_k),
      "sample from the k most likely tokens; 0: from all");
  add("seed", po::value(&sampling.seed)->value_name("N")->default_value(sampling.seed), "seed of the sampling");
  add("timing", po::bool_switch(&options.timing),
      "report the speed of prefill and of decoding separately, after a warm-up pass");
  return described;
}

void check_sampling(const Sampling& sampling) {
  require_usage(sampling.tokens >= 0, "--tokens = {}: must be 0 or more", sampling.tokens);
  require_usage(sampling.temperature >= 0 && std::isfinite(sampling.temperature),
                "--temperature = {}: must be 0 (always the most likely token) or more", sampling.temperature);
  require_usage(sampling.top_k >= 0, "--top-k = {}: must be 0 (sample from all) or more", sampling.top_k);
}

std::string timing_text(std::int64_t prompt, const GenerationTimes& times) {
  const auto line = [](const char* what, std::int64_t tokens, double seconds) {
    return fmt::format("{:<8}  {} in {:.3f} s, {:.1f} tokens/s", what, count_text(tokens, "token"), seconds,
                       static_cast<double>(tokens) / seconds);
  };
  std::string text = line("prompt", prompt, times.prompt) + '\n';
  if (times.tokens.empty()) return text;
  return text + line("decoding", std::ssize(times.tokens), times.decoding()) +
         fmt::format(", {:.3f} ms per token (median)\n", 1000 * times.median());
}

}  // namespace

CommandHelp generate_help() {
  GenerateOptions defaults;
  return describe_configured("lyceum generate --checkpoint DIR --prompt TEXT [--section.key=value …]",
                             "Generates text from a prompt, with the checkpoint's configuration and tokenizer. For "
                             "a checkpoint of an earlier version,\n"
                             "which has no tokenizer, set data.tokenizer.\n"
                             "Without --checkpoint the newest checkpoint in the configured run.dir is used.",
                             described_options(defaults));
}

int generate_command(const MpiSession& session, const Arguments& arguments) {
  GenerateOptions options;
  const ParsedOptions parsed = parse_options(described_options(options), arguments);
  const auto& [path, prompt, sampling, timing] = options;
  if (parsed.help) {
    std::cout << generate_help().text;
    return 0;
  }
  require_usage(session.size() == 1, "generate runs on one rank: start it without mpirun");
  check_sampling(sampling);
  const std::optional<CheckpointRun> run = configure_reader(session, path, parsed.rest);
  if (!run) return 0;
  require_usage(parsed.values.count("prompt") > 0,
                "--prompt is missing: give the text to continue, or '' to let the model begin a document");
  const Config& config = run->config;
  require_usage(!config.data.tokenizer.empty(), "data.tokenizer is not set: name the tokenizer of these tokens");
  const Tokenizer tokenizer(config.data.tokenizer);
  options.sampling.vocab = tokenizer.vocab();
  if (run->reader.tokenizer_sha256().empty()) {  // else it is the checkpoint's own
    std::vector<std::string> prefixes;
    for (const DataSource& source : data_sources("data.train", config.data.train)) prefixes.push_back(source.prefix);
    for (const DataSource& source : data_sources("data.valid", config.data.valid)) prefixes.push_back(source.prefix);
    require_one_tokenizer(config.data.tokenizer, digest_of_file(config.data.tokenizer).sha256, prefixes);
  }
  std::vector<std::int32_t> tokens = tokenizer.encode(prompt);
  if (tokens.empty()) tokens.push_back(tokenizer.end_of_document());  // every document follows one
  require_prompt_fits(tokens.size(), config.batch.seq_len);
  const auto setup = set_up(config, session, Reading::generate);
  Transformer model(config, setup->stream, setup->mesh, working_type(config.run), false);
  load_weights(run->reader, setup->stream, model.units());

  const std::vector<std::int32_t> given = tokens;
  if (timing) {  // memory and plans of both kinds of passes are there then
    Sampling two = sampling;
    two.tokens = 2;
    generate(model, setup->stream, given, -1, config.batch.seq_len, two, [](std::int32_t) {});
  }
  std::string shown = tokenizer.decode(tokens);
  std::cout << prompt << std::flush;
  const auto show = [&](bool last) {
    const std::string text = tokenizer.decode(tokens);           // whole: a letter may take several tokens
    if (!last && text.ends_with(replacement_character)) return;  // of which some are still to come
    if (text.starts_with(shown)) std::cout << text.substr(shown.size()) << std::flush;
    shown = text;
  };
  const auto start = Clock::now();
  const GenerationTimes times = generate(model, setup->stream, given, tokenizer.end_of_document(), config.batch.seq_len,
                                         sampling, [&](std::int32_t token) {
                                           tokens.push_back(token);
                                           show(false);
                                         });
  show(true);
  std::cout << std::endl;
  if (timing) {
    std::cerr << timing_text(std::ssize(given), times);
    return 0;
  }
  const std::size_t made = tokens.size() - given.size();
  const double seconds = seconds_since(start);
  std::cerr << fmt::format("{} tokens in {:.2f} s, {:.1f} tokens/s\n", made, seconds,
                           static_cast<double>(made) / seconds);
  return 0;
}

}  // namespace lyceum
