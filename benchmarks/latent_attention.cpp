// Compares latent attention with multi-head attention of as many FLOPs, in the same model otherwise: whole training
// steps, and tokens/s and cache of generation:
//   bench_latent_attention --config FILE [--section.key=value …] [--rounds 5] [--decoded 32]
// The configuration has model.attention = mla. The other model has the head width, a multiple of 8, with which a step
// takes most nearly as many FLOPs. Every round runs both models, so that other load on the machine affects both
// equally. Times are CPU times of the process; use run.threads = 1, so that no thread waits for another. A ratio is the
// median over rounds of the ratio in the same round. Prompts of batch.seq_len − N tokens are continued by N tokens
// (--decoded).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/binding.h"
#include "config/check.h"
#include "io/data/tokens/token_formats.h"
#include "model/counts.h"
#include "parallel/data/copies.h"
#include "train/step/step.h"
#include "zipf_tokens.h"

using namespace lyceum;

namespace {

/// Returns the CPU seconds that `work` takes in this process.
template <class Work>
double cpu_seconds(const Work& work) {
  const std::clock_t start = std::clock();
  work();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

/// CPU seconds of a prompt and of the tokens after it, and the bytes of the caches.
struct Generated {
  double prompt, decoding;
  std::int64_t cache_bytes;
};

/// A model in training.
class TrainedModel {
 public:
  TrainedModel(Config config, const MpiSession& session)
      : config_(std::move(config)),
        setup_(set_up(config_, session)),
        model_(config_, setup_->stream, setup_->mesh, working_type(config_.run), true),
        zero_(model_.units(), setup_->mesh, setup_->stream, zero_options(config_, setup_->mesh)) {
    zero_.initialize(config_.run.seed);
    optimizer_ = std::make_unique<Optimizer>(config_.optim, setup_->mesh, setup_->stream, zero_.shares());
    optimizer_->adopt_weights();
    step_ = std::make_unique<TrainStep>(config_, *setup_, model_, zero_, *optimizer_);
  }

  double train(const TokenLoader& loader, std::int64_t step) {
    return cpu_seconds([&] {
      step_->run(loader, step, step * config_.batch.global, 1e-4);
      zero_.await_values();
    });
  }
  double flops() const {
    return count_model(config_).causal_flops_per_sequence * static_cast<double>(config_.batch.global);
  }

 private:
  Config config_;
  std::unique_ptr<RunSetup> setup_;
  StagedModel model_;
  Zero zero_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<TrainStep> step_;
};

/// A model in generation.
class Generator {
 public:
  Generator(const Config& config, const MpiSession& session)
      : seq_len_(config.batch.seq_len),
        setup_(set_up(config, session, Reading::generate)),
        model_(config, setup_->stream, setup_->mesh, working_type(config.run), false) {
    model_.initialize(1);
  }

  /// Reads all but the last `decoded` positions of a sequence at once, and the others one by one.
  Generated run(std::int64_t decoded) const {
    std::vector<KeyValueCache> caches = model_.new_caches(seq_len_);
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(seq_len_), 1);
    const std::span<const std::int32_t> all = tokens;
    const auto last = static_cast<std::size_t>(decoded);
    Generated result{};
    result.prompt = cpu_seconds([&] { (void)model_.next_logits(all.first(all.size() - last), caches); });
    result.decoding = cpu_seconds([&] {
      for (std::size_t i = 0; i < last; ++i) (void)model_.next_logits(all.first(1), caches);
    });
    for (const KeyValueCache& cache : caches) {
      for (const Tensor* rows : {&cache.keys, &cache.values}) {
        if (rows->defined()) result.cache_bytes += rows->size() * static_cast<std::int64_t>(size_of(rows->dtype()));
      }
    }
    return result;
  }

 private:
  std::int64_t seq_len_;
  std::unique_ptr<RunSetup> setup_;
  Transformer model_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double median_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return median(ratios);
}

Config resolved(Config config) {
  require_none(problems(config, 1));
  resolve(config, 1);
  return config;
}

/// Returns the model with multi-head attention whose FLOPs are closest to those of `latent`.
Config with_equal_flops(const Config& latent) {
  const double wanted = count_model(resolved(latent)).causal_flops_per_sequence;
  Config best;
  double least = INFINITY;
  for (std::int64_t width = 8; width <= 512; width += 8) {
    Config config = latent;
    config.model.attention = AttentionKind::multi_head;
    config.model.latent = {};
    config.model.kv_heads = 0;
    config.model.head_dim = width;
    const double distance = std::abs(count_model(resolved(config)).causal_flops_per_sequence / wanted - 1);
    if (!(distance < least)) continue;
    least = distance;
    best = config;
  }
  return best;
}

/// Both models' times in every round.
using Rounds = std::array<std::vector<double>, 2>;

void compare_steps(const std::array<Config, 2>& configs, const MpiSession& session, int rounds) {
  const BatchConfig& batch = configs[0].batch;
  const auto directory = std::filesystem::temp_directory_path() / "lyceum-bench-latent";
  std::filesystem::create_directories(directory);
  const TokenLoader loader(
      open_tokens(write_tokens(directory, configs[0].model.vocab, 4 * batch.global * batch.seq_len + 1)),
      SampleOrder(SampleOrder::Kind::sequential, 1, 0, 4 * batch.global), batch.seq_len);
  std::filesystem::remove_all(directory);  // the file remains mapped
  const std::array models{std::make_unique<TrainedModel>(configs[0], session),
                          std::make_unique<TrainedModel>(configs[1], session)};
  Rounds seconds;
  for (int round = -1; round < rounds; ++round) {  // round -1 is the warm-up
    for (std::size_t i = 0; i < 2; ++i) {
      const double time = models[i]->train(loader, round + 1);
      if (round >= 0) seconds[i].push_back(time);
    }
  }
  const std::array flops{models[0]->flops(), models[1]->flops()};
  for (std::size_t i = 0; i < 2; ++i) {
    fmt::print("step, {:<11} {:9.1f} ms {:9.2f} GFLOP {:8.1f} GFLOP/s\n", i == 0 ? "latent" : "multi-head",
               median(seconds[i]) * 1e3, flops[i] / 1e9, flops[i] / median(seconds[i]) / 1e9);
  }
  fmt::print("FLOP/s of latent to multi-head attention: {:.3f}\n",
             median_ratio(seconds[1], seconds[0]) * flops[0] / flops[1]);
}

void compare_generation(const std::array<Config, 2>& configs, const MpiSession& session, int rounds,
                        std::int64_t decoded) {
  const std::array models{std::make_unique<Generator>(configs[0], session),
                          std::make_unique<Generator>(configs[1], session)};
  Rounds prompts, tokens;
  std::array<std::int64_t, 2> bytes{};
  for (int round = -1; round < rounds; ++round) {
    for (std::size_t i = 0; i < 2; ++i) {
      const Generated result = models[i]->run(decoded);
      bytes[i] = result.cache_bytes;
      if (round < 0) continue;
      prompts[i].push_back(result.prompt);
      tokens[i].push_back(result.decoding);
    }
  }
  const std::int64_t length = configs[0].batch.seq_len;
  for (std::size_t i = 0; i < 2; ++i) {
    fmt::print("generation, {:<11} prompt of {} in {:.1f} ms, then {:.1f} tokens/s; cache of {} bytes, {} per token\n",
               i == 0 ? "latent" : "multi-head", length - decoded, median(prompts[i]) * 1e3,
               static_cast<double>(decoded) / median(tokens[i]), bytes[i], bytes[i] / length);
  }
  fmt::print("latent to multi-head attention: prompt {:.3f}, tokens/s {:.3f}, cache {:.3f}\n",
             median_ratio(prompts[1], prompts[0]), median_ratio(tokens[1], tokens[0]),
             static_cast<double>(bytes[0]) / static_cast<double>(bytes[1]));
}

int run(const MpiSession& session, const std::vector<std::string>& arguments) {
  LoadedConfig loaded = load_config(arguments);
  int rounds = 5;
  std::int64_t decoded = 32;
  for (std::size_t i = 0; i + 1 < loaded.rest.size(); i += 2) {
    if (loaded.rest[i] == "--rounds") rounds = std::stoi(loaded.rest[i + 1]);
    if (loaded.rest[i] == "--decoded") decoded = std::stoi(loaded.rest[i + 1]);
  }
  const Config& config = loaded.config;
  require_usage(session.size() == 1, "this benchmark has one rank");
  require_usage(config.model.attention == AttentionKind::latent, "set model.attention = mla");
  require_usage(rounds >= 1 && decoded >= 1 && decoded < config.batch.seq_len, "--rounds or --decoded is out of range");
  const std::array configs{resolved(config), resolved(with_equal_flops(config))};
  fmt::print("latent: {} heads of {} and {} columns; multi-head: {}\n", configs[0].model.heads,
             configs[0].model.head_dim, configs[0].model.latent.value_dim, configs[1].model.head_dim);
  compare_steps(configs, session, rounds);
  compare_generation(configs, session, rounds, decoded);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const MpiSession session;
  try {
    return run(session, {argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_latent_attention: {}\n", error.what());
    session.abort(ExitCode::failed);
  }
}
