#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/options.h"
#include "apps/output.h"
#include "apps/run_config.h"
#include "apps/text_start.h"
#include "core/allocator.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/resident_memory.h"
#include "io/checkpoint/unit_tensors.h"
#include "io/data/encoding/chat.h"
#include "io/data/records/prompts.h"
#include "io/data/tokenizer/tokenizer.h"
#include "io/text/json.h"
#include "io/text/stop_texts.h"
#include "io/text/table.h"
#include "io/text/utf8.h"
#include "plan/text.h"
#include "train/eval/generator.h"
#include "train/setup/run_setup.h"

namespace lyceum {

namespace po = boost::program_options;

namespace {

struct GenerateOptions {
  std::string path, prompt, prompts, system;
  std::vector<std::string> stops;
  Sampling sampling;
  bool ema = false, chat = false, show_special = false, json = false, timing = false;
};

po::options_description described_options(GenerateOptions& options) {
  Sampling& sampling = options.sampling;
  po::options_description described;
  auto add = described.add_options();
  add("checkpoint", po::value(&options.path)->value_name("DIR"), "a checkpoint or the directory of a run");
  add("prompt", po::value(&options.prompt)->value_name("TEXT"), "text to continue; '': the model begins a document");
  add("prompts", po::value(&options.prompts)->value_name("FILE"),
      "instead of --prompt: one per line, or, in .jsonl, .ndjson, .jsonlines and .ldjson files, one record per line "
      "with a \"prompt\", with --chat also with \"messages\"; may be compressed with gzip or zstd");
  add("ema", po::bool_switch(&options.ema), "use the moving average of the weights (optim.ema)");
  add("chat", po::bool_switch(&options.chat),
      "a prompt is a user's message, rendered with the chat template of the run (data.chat); print only the answer");
  add("system", po::value(&options.system)->value_name("TEXT"), "with --chat: system text of prompts that have none");
  add("tokens", po::value(&sampling.tokens)->value_name("N")->default_value(sampling.tokens),
      "largest number of tokens to generate");
  add("temperature", po::value(&sampling.temperature)->value_name("X")->default_value(sampling.temperature, "0.8"),
      "sampling temperature; 0: always the most likely token");
  add("top-k", po::value(&sampling.top_k)->value_name("K")->default_value(sampling.top_k),
      "sample from the k most likely tokens; 0: from all");
  add("top-p", po::value(&sampling.top_p)->value_name("P")->default_value(sampling.top_p, "1"),
      "sample from the most likely of these that together have probability P");
  add("seed", po::value(&sampling.seed)->value_name("N")->default_value(sampling.seed), "seed of the sampling");
  add("stop", po::value(&options.stops)->composing()->value_name("TEXT"),
      "end before this text, or at the token of this name; may be repeated");
  add("show-special", po::bool_switch(&options.show_special), "print special tokens, too");
  add("json", po::bool_switch(&options.json), "print one JSON object per prompt: prompt text tokens end end_token");
  add("timing", po::bool_switch(&options.timing),
      "report the speed of prefill and of decoding separately, after a warm-up pass, and the peak memory");
  return described;
}

void check_sampling(const Sampling& sampling) {
  require_usage(sampling.tokens >= 0, "--tokens = {}: must be 0 or more", sampling.tokens);
  require_usage(sampling.temperature >= 0 && std::isfinite(sampling.temperature),
                "--temperature = {}: must be 0 (always the most likely token) or more", sampling.temperature);
  require_usage(sampling.top_k >= 0, "--top-k = {}: must be 0 (sample from all) or more", sampling.top_k);
  require_usage(sampling.top_p > 0 && sampling.top_p <= 1, "--top-p = {}: must be above 0 and at most 1",
                sampling.top_p);
}

void check(const GenerateOptions& options, const po::variables_map& values) {
  require_usage(values.count("prompt") + values.count("prompts") < 2, "--prompt and --prompts: give only one of them");
  require_usage(options.system.empty() || options.chat, "--system needs --chat, which renders it");
  require_usage(!options.timing || options.prompts.empty(), "--timing measures one prompt: give --prompt");
  require_usage(std::ranges::find(options.stops, "") == options.stops.end(), "--stop '' would end every text");
}

std::vector<Prompt> prompts_of(const GenerateOptions& options) {
  if (!options.prompts.empty()) return read_prompts(options.prompts, options.chat, options.system);
  return {options.chat ? chat_prompt(options.system, options.prompt) : Prompt{.text = options.prompt}};
}

/// Returns the tokens of a prompt. Without a chat template, they begin with those of `start`.
std::vector<std::int32_t> tokens_of(const Prompt& prompt, const ChatTemplate* chat, const TextStart& start,
                                    const Tokenizer& tokenizer) {
  std::vector<std::int32_t> tokens;
  if (chat) {
    TextEncoder encoder(tokenizer);
    std::vector<std::uint8_t> trained;
    encode_chat(render_prompt(prompt.messages, *chat), tokenizer, encoder, tokens, trained);
  } else {
    tokens = encode_context(tokenizer, prompt.text, start.context);
  }
  if (tokens.empty()) tokens.push_back(start.document);
  return tokens;
}

/// Throws a bad_input Error if the model has no embedding of a token.
void require_known(std::span<const std::int32_t> tokens, const Tokenizer& tokenizer, std::int64_t vocab) {
  const auto unknown = std::ranges::find_if(tokens, [&](std::int32_t token) { return token >= vocab; });
  if (unknown == tokens.end()) return;
  fail(ExitCode::bad_input, "a prompt with the token {} ({}): this model has only {} tokens (model.vocab)", *unknown,
       tokenizer.decode(std::span(&*unknown, 1), true), vocab);
}

/// Calls use(). Converts its Error about a prompt from a file to a bad_input Error that names the line.
template <class Use>
void blame(const Prompt& prompt, std::string_view subject, const Use& use) {
  try {
    use();
  } catch (const Error& error) {
    if (prompt.location.empty()) throw;
    fail(ExitCode::bad_input, "{}: {}{}", prompt.location, subject, error.what());
  }
}

/// True for a special token and for one whose text equals its name. Other names, such as <0x0A> or GPT-2's é for a
/// byte, differ from the text that users see.
bool is_named(std::int32_t token, const std::string& name, const Tokenizer& tokenizer) {
  const std::string shown = tokenizer.decode(std::span(&token, 1), true);
  return shown == name || shown != tokenizer.decode(std::span(&token, 1), false);
}

/// The text that the model generates from a prompt. It is printed as it grows.
class Answer {
 public:
  struct Shown {
    bool special = false, streamed = true;
    std::string_view lead = {};  // text at the beginning that belongs to the chat template and is not shown
  };
  Answer(const Tokenizer& tokenizer, std::span<const std::int32_t> given, const StopTexts& stops, const Shown& shown)
      : tokenizer_(tokenizer),
        stops_(stops),
        shown_(shown),
        tokens_(given.begin(), given.end()),
        given_(given.size()),
        before_(tokenizer.decode(given, shown.special)) {}

  /// Adds a generated token. Returns false if the text now contains a stop text.
  bool add(std::int32_t token) {
    tokens_.push_back(token);
    read();
    if (found_.stops) return false;
    if (!text_.ends_with(replacement_character)) print();  // otherwise the rest of a character is missing
    return true;
  }
  void finish(const std::optional<std::int32_t>& end) {
    if (end && shown_.special) tokens_.push_back(*end);
    read();
    if (!found_.stops) found_.length = text_.size();
    print();
    text_.resize(found_.length);
  }
  const std::string& text() const { return text_; }
  std::span<const std::int32_t> tokens() const { return std::span(tokens_).subspan(given_); }

 private:
  void read() {
    const std::string whole = tokenizer_.decode(tokens_, shown_.special);  // a character may consist of several tokens
    text_ = whole.starts_with(before_) ? whole.substr(before_.size()) : tokenizer_.decode(tokens(), shown_.special);
    if (text_.starts_with(shown_.lead)) text_.erase(0, shown_.lead.size());
    found_ = stops_.find_in(text_);
  }
  void print() {
    if (!shown_.streamed || found_.length <= printed_) return;
    print_exactly(std::string_view(text_).substr(printed_, found_.length - printed_));
    printed_ = found_.length;
  }

  const Tokenizer& tokenizer_;
  const StopTexts& stops_;
  Shown shown_;
  std::vector<std::int32_t> tokens_;
  std::size_t given_, printed_ = 0;
  std::string before_, text_;
  StopTexts::Found found_;
};

std::string json_of(const std::string& prompt, const Answer& answer, const GenerationTimes& times) {
  nlohmann::ordered_json json{{"prompt", prompt}, {"text", answer.text()}, {"tokens", answer.tokens()}};
  json["end"] = times.end == GenerationEnd::token ? "token" : times.end == GenerationEnd::sink ? "stop" : "length";
  json["end_token"] = times.end_token ? nlohmann::ordered_json(*times.end_token) : nlohmann::ordered_json();
  return json_text(json);
}

/// Returns the chat template of the run. Throws a usage Error if there is none, or if the tokenizer lacks its tokens.
const ChatTemplate& template_of(const DataConfig& data, const Tokenizer& tokenizer) {
  require_usage(data.chat != "auto",
                "--chat: the run was not trained on chats of lyceum tokenize --chat: set data.chat to a chat template");
  const ChatTemplate& chat = chat_template(data.chat);
  require_template_tokens(chat, tokenizer, data.tokenizer);
  return chat;
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

std::string memory_text(const Stream& stream) {
  return fmt::format("memory    peak {} of tensors, {} of the process\n",
                     bytes_text(static_cast<double>(memory_of(stream).use().total_peak)),
                     bytes_text(static_cast<double>(peak_resident_memory())));
}

}  // namespace

CommandHelp generate_help() {
  GenerateOptions defaults;
  return describe_configured(
      "lyceum generate --checkpoint DIR --prompt TEXT [--chat] [--section.key=value …]",
      "Generates text from a prompt, with the checkpoint's configuration and tokenizer, up to an "
      "end-of-text token or,\n"
      "in a run trained on chats, the token that ends an answer. For a checkpoint of an earlier "
      "version, which has\n"
      "no tokenizer, set data.tokenizer.\n"
      "Without --checkpoint the newest checkpoint in the configured run.dir is used.",
      described_options(defaults));
}

int generate_command(const MpiSession& session, const Arguments& arguments) {
  GenerateOptions options;
  const ParsedOptions parsed = parse_options(described_options(options), arguments);
  if (parsed.help) {
    print(generate_help().text);
    return 0;
  }
  require_usage(session.size() == 1, "generate runs on one rank: start it without mpirun");
  check_sampling(options.sampling);
  check(options, parsed.values);
  std::optional<CheckpointRun> run = configure_reader(session, options.path, parsed.rest);
  if (!run) return 0;
  if (options.ema) run->reader.use_averages();
  require_usage(parsed.values.count("prompt") + parsed.values.count("prompts") > 0,
                "--prompt is missing: give the text to continue, or '' to let the model begin a document");
  const Config& config = run->config;
  const Tokenizer tokenizer = tokenizer_of(*run);
  options.sampling.vocab = tokenizer.vocab();
  const ChatTemplate* const chat = options.chat ? &template_of(config.data, tokenizer) : nullptr;
  const std::vector<Prompt> prompts = prompts_of(options);
  const TextStart start = text_start(run->reader, tokenizer);
  std::vector<std::vector<std::int32_t>> given;
  for (const Prompt& prompt : prompts) {
    blame(prompt, "a record ", [&] { given.push_back(tokens_of(prompt, chat, start, tokenizer)); });
    blame(prompt, "", [&] {
      require_prompt_fits(given.back().size(), config.batch.seq_len);
      require_known(given.back(), tokenizer, config.model.vocab);
    });
  }
  std::vector<std::int32_t> ends = end_tokens(config.data.chat, config.data.end_tokens, tokenizer);
  for (const std::string& stop : options.stops) {
    const std::optional<std::int32_t> token = tokenizer.token(stop);
    if (token && is_named(*token, stop, tokenizer)) ends.push_back(*token);
  }
  const auto setup = set_up(config, session, Reading::generate);
  Transformer model(config, setup->stream, setup->mesh, working_type(config.run), false);
  load_weights(run->reader, setup->stream, model.units());

  const Sampling& sampling = options.sampling;
  if (options.timing) {                      // warms up memory and kernels for both kinds of passes
    memory_of(setup->stream).reset_peaks();  // loading used additional memory
    Sampling two = sampling;
    two.tokens = 2;
    generate(model, setup->stream, given[0], {}, config.batch.seq_len, two, [](std::int32_t) { return true; });
  }
  const StopTexts stops(options.stops);
  std::size_t made = 0;
  const auto begun = Clock::now();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Answer answer(tokenizer, given[i], stops,
                  {.special = options.show_special,
                   .streamed = !options.json,
                   .lead = chat && !options.show_special ? chat->role(std::string(assistant_role)).lead : ""});
    const std::string shown_prompt = chat ? tokenizer.decode(given[i], true) : prompts[i].text;
    if (!options.json && (!chat || options.show_special)) print_exactly(shown_prompt);
    const GenerationTimes times = generate(model, setup->stream, given[i], ends, config.batch.seq_len, sampling,
                                           [&](std::int32_t token) { return answer.add(token); });
    made += answer.tokens().size();
    answer.finish(times.end_token);
    if (options.json) {
      print(json_of(shown_prompt, answer, times) + '\n');
    } else {
      print_exactly("\n");
    }
    if (options.timing) {
      std::cerr << timing_text(std::ssize(given[i]), times) << memory_text(setup->stream);
      return 0;
    }
  }
  const double seconds = seconds_since(begun);
  std::cerr << fmt::format("{} tokens in {:.2f} s, {:.1f} tokens/s\n", made, seconds,
                           static_cast<double>(made) / seconds);
  return 0;
}

}  // namespace lyceum
