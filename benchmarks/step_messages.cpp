// Counts the MPI messages that ranks send in a training step, from rehearsals: no rank runs, and nothing is measured.
//   bench_step_messages [--axis data|tensor] [--ranks 2,4,8,…] [--json FILE]
// Messages that MPI sends by itself, for barriers, say, are not counted; start_messages.py measures all.
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "config/check.h"
#include "core/random.h"
#include "io/data/tokens/megatron_writer.h"
#include "io/data/tokens/token_formats.h"
#include "train/run/preflight.h"

using namespace lyceum;

namespace {

constexpr std::int64_t vocab = 4096, tokens = 100'000;

/// Returns a model with 64 experts in each of 4 layers, the same for every number of ranks of an axis. Each data rank
/// has one sequence. For tensor ranks, of which there may be 4096, the model has 4096 heads and the batch one sequence.
Config model_for(const std::string& axis, int ranks) {
  Config config;
  config.run.threads = 1;
  config.model.vocab = vocab;
  config.model.layers = 4;
  config.model.heads = 4;
  config.model.hidden = 64;
  config.model.first_dense_layers = 0;
  config.moe.experts = 64;
  config.moe.top_k = 8;
  config.moe.expert_hidden = 64;
  config.batch = {.global = ranks, .micro = 1, .seq_len = 16};
  if (axis == "tensor") {
    config.parallel.tensor = ranks;
    config.parallel.sequence = true;
    config.model.heads = 4096;
    config.model.head_dim = 2;
    config.model.ffn_hidden = 4096;
    config.batch = {.global = 1, .micro = 1, .seq_len = 4096};
  }
  return config;
}

std::string write_tokens(const std::filesystem::path& directory) {
  const std::string prefix = (directory / "tokens").string();
  MegatronWriter writer(prefix, vocab);
  const Philox random(7, "benchmark tokens");
  std::vector<std::int32_t> document;
  for (std::uint64_t i = 0; i < tokens; ++i) document.push_back(static_cast<std::int32_t>(random.below(vocab, i)));
  writer.add_document(document);
  writer.finish();
  return prefix;
}

struct Messages {
  double mean = 0;
  std::int64_t most = 0;
  int busiest = 0;  // rank
};

Messages count(const Config& model, const std::string& prefix, int ranks) {
  Config config = model;
  resolve(config, ranks);
  require_none(problems(config, ranks));
  const std::int64_t samples = tokens / config.batch.seq_len - 1;
  const TokenLoader loader(open_tokens(prefix), SampleOrder(SampleOrder::Kind::sequential, 1, 0, samples),
                           config.batch.seq_len);
  Messages messages;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t sent = messages_of_step(config, loader, rank, ranks);
    messages.mean += static_cast<double>(sent) / ranks;
    if (sent > messages.most) messages = {.mean = messages.mean, .most = sent, .busiest = rank};
  }
  return messages;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> given{
      {"--axis", "data"}, {"--ranks", "2,4,8,16,32,64,128,256,512,1024,2048,4096"}, {"--json", ""}};
  for (int i = 1; i < argc; i += 2) {
    if (!given.contains(argv[i]) || i + 1 == argc) {
      fmt::print(stderr, "usage: bench_step_messages [--axis data|tensor] [--ranks 2,4,8,…] [--json FILE]\n");
      return 2;
    }
    given[argv[i]] = argv[i + 1];
  }
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("lyceum-step-messages-{}", getpid());
  std::filesystem::create_directories(folder);
  const std::string prefix = write_tokens(folder);
  auto rows = nlohmann::ordered_json::array();
  fmt::print("messages that a rank sends in a step, {} axis\n{:>6}  {:>8}  {:>8}  {}\n", given["--axis"], "ranks",
             "mean", "most", "busiest rank");
  std::stringstream list(given["--ranks"]);
  for (std::string text; std::getline(list, text, ',');) {
    const int ranks = std::stoi(text);
    const Messages messages = count(model_for(given["--axis"], ranks), prefix, ranks);
    fmt::print("{:>6}  {:>8.0f}  {:>8}  {}\n", ranks, messages.mean, messages.most, messages.busiest);
    std::fflush(stdout);
    rows.push_back({{"axis", given["--axis"]}, {"ranks", ranks}, {"mean", messages.mean}, {"most", messages.most}});
  }
  if (!given["--json"].empty()) std::ofstream(given["--json"]) << rows.dump(1) << '\n';
  std::filesystem::remove_all(folder);
}
