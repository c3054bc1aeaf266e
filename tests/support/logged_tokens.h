#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "io/routing/token_log.h"
#include "support/temporary_directory.h"
#include "support/tiny_run.h"
#include "train/eval/evaluator.h"
#include "train/eval/token_collector.h"

namespace lyceum {

/// The token log of an evaluation, read back into memory. Filled on rank 0 only.
struct Logged {
  Evaluation evaluation;
  std::vector<float> losses{};
  std::array<std::vector<std::int64_t>, 3> identity{};
  std::vector<std::vector<std::int32_t>> chosen{};  // [layers][tokens · k], in the order of the log
  std::vector<std::vector<float>> gates{};
};

struct TokenLogCase {
  std::int64_t micro = 8, batches = 0, skip_top = 0;
  int tensor = 1, pipeline = 1;
  bool sequence = true;
};

/// Collective over `world`. Evaluates a model on the mesh of `how`, writes a token log, and reads it back.
inline Logged log_tokens(Config config, const ProcessGroup& world, const TokenLogCase& how,
                         const Stream& stream = fresh_stream()) {
  const int experts_over = world.size() / how.pipeline;
  config.batch.micro = how.micro;
  config.parallel = {.pipeline = how.pipeline, .tensor = how.tensor, .expert = experts_over, .sequence = how.sequence};
  resolve(config, world.size());
  const auto setup =
      make_setup(world, {.pipeline = how.pipeline, .tensor = how.tensor, .expert = experts_over}, stream);
  StagedModel model(config, setup->stream, setup->mesh, DType::f32, false);
  model.initialize(2);
  model.skip_top(how.skip_top);
  const TinyData data(config.model.vocab, 552);  // 46 samples, which no mesh divides
  const TokenLoader loader = data.loader(config);
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "tokens.h5";
  const std::int64_t tokens = evaluated_samples(config, loader, how.batches) * config.batch.seq_len;
  std::optional<TokenLog> log;
  if (world.rank() == 0) {
    const std::vector<TokenLogLayer> layers = token_log_layers(config);
    log.emplace(file, TokenLog::Header{.checkpoint = "c", .data = "d", .tokens = tokens, .layers = layers});
  }
  TokenCollector collector(*setup, config, model, log ? &*log : nullptr);
  Logged logged{.evaluation = evaluate(model, *setup, config, loader, how.batches, {.collector = &collector})};
  if (!log) return logged;
  log->finish();
  const TokenLogFile read(file);
  const Range all{0, read.tokens()};
  logged.losses = read.losses(all);
  logged.identity = read.identity(all);
  const hdf5::File raw = hdf5::File::open(file);
  for (std::size_t l = 0; l < read.layers().size(); ++l) {
    logged.chosen.push_back(read.chosen(l, all));
    logged.gates.push_back(raw.dataset(l == 0 ? "/layers/001/gate" : "/layers/002/gate").read<float>());
  }
  return logged;
}

inline void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(std::abs(a[i] - b[i]) <= 1e-4f * (1 + std::abs(b[i]))) << i;
}

}  // namespace lyceum
