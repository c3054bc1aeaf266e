#include <array>
#include <iostream>

#include "apps/options.h"
#include "apps/run_config.h"
#include "io/sha256.h"
#include "io/tokenizer.h"
#include "train/generator.h"
#include "train/optimizer.h"
#include "train/run_setup.h"

namespace lyceum {

namespace po = boost::program_options;

int generate_command(const MpiSession& session, const Arguments& arguments) {
  std::string path, prompt;
  Sampling sampling;
  po::options_description options("options");
  options.add_options()("checkpoint", po::value(&path), "a checkpoint, or the directory of a run")(
      "prompt", po::value(&prompt), "text to go on from")(
      "tokens", po::value(&sampling.tokens)->default_value(sampling.tokens), "tokens to make at most")(
      "temperature", po::value(&sampling.temperature)->default_value(sampling.temperature, "0.8"),
      "0: always the most likely token")("top-k", po::value(&sampling.top_k)->default_value(sampling.top_k),
                                         "draw from the k most likely; 0: from all")(
      "seed", po::value(&sampling.seed)->default_value(sampling.seed), "another seed, another text");
  const ParsedOptions parsed = parse_options(
      options, arguments,
      "usage: lyceum generate --checkpoint DIR --prompt TEXT [--config FILE] [--section.key=value …]\n\n"
      "Goes on from a prompt. The checkpoint brings its configuration and its tokenizer (one of an earlier version "
      "does\n"
      "not: then data.tokenizer names it). Without --checkpoint it is the newest one of the run.dir that a file or\n"
      "--run.dir names.");
  if (parsed.help) {
    std::cout << parsed.help_text;
    return 0;
  }
  require_usage(session.size() == 1, "generate runs as one rank: start it without mpirun");
  const std::optional<CheckpointRun> run = configure_reader(session, path, parsed.rest);
  if (!run) return 0;
  const Config& config = run->config;
  require_usage(!config.data.tokenizer.empty(), "data.tokenizer is not set: name the SentencePiece model");
  const Tokenizer tokenizer(config.data.tokenizer);
  if (run->reader.tokenizer_sha256().empty()) {  // else it is the checkpoint's own
    require_one_tokenizer(config.data.tokenizer, digest_of_file(config.data.tokenizer).sha256,
                          std::array{config.data.train, config.data.valid});
  }
  std::vector<std::int32_t> tokens = tokenizer.encode(prompt);
  if (tokens.empty()) tokens.push_back(tokenizer.end_of_document());  // every document follows one
  require_prompt_fits(tokens.size(), config.batch.seq_len);
  const auto setup = set_up(config, session, Reading::generate);
  Transformer model(config, setup->stream, setup->mesh, working_type(config.run), false);
  load_weights(run->reader, setup->stream, model.units());

  const std::vector<std::int32_t> given = tokens;
  std::string shown = tokenizer.decode(tokens);
  std::cout << prompt << std::flush;
  generate(model, setup->stream, given, tokenizer.end_of_document(), config.batch.seq_len, sampling,
           [&](std::int32_t token) {
             tokens.push_back(token);
             const std::string text = tokenizer.decode(tokens);  // whole: a letter may take several tokens
             if (text.starts_with(shown)) std::cout << text.substr(shown.size()) << std::flush;
             shown = text;
           });
  std::cout << '\n';
  return 0;
}

}  // namespace lyceum
