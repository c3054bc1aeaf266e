// Measures how fast the device-level balance loss [DeepSeekMoE eq. 15–17] evens out the load of expert groups. A model
// whose router initially prefers the experts of the first group is trained twice, with and without the loss:
//   mpirun -n 4 bench_device_balance [--steps N] [--factor A] [--csv OUT]
// A group is the experts of one expert rank, and its load the number of (token, expert) pairs that they receive. The
// busiest group's load divided by the mean load shows how long the others wait: 1 is even, the number of groups the
// worst case.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "config/check.h"
#include "core/random.h"
#include "io/data/tokens/megatron_writer.h"
#include "io/data/tokens/token_formats.h"
#include "train/step/step.h"

using namespace lyceum;

namespace {

constexpr double skew = 8;  // factor on the first group's rows of the router's weight
constexpr std::int64_t vocab = 512, seq_len = 64, batch = 16;

Config model_of(double factor, int groups) {
  Config config;
  config.batch = {.global = batch, .micro = 0, .seq_len = seq_len};
  config.model.vocab = vocab;
  config.model.layers = 3;
  config.model.hidden = 64;
  config.model.heads = 4;
  config.model.init_std = 0.02;
  config.model.first_dense_layers = 1;
  config.moe.experts = 32;
  config.moe.shared_experts = 1;
  config.moe.top_k = 4;
  config.moe.expert_hidden = 32;
  config.balance.expert = 0.003;  // as the paper's 145B model
  config.balance.device = factor;
  config.parallel.expert = groups;
  config.run.threads = 1;
  return config;
}

/// Writes `count` + 1 tokens and returns their prefix. Every second token is a function of the one before, the others
/// are random.
std::string write_tokens(const std::filesystem::path& directory, std::int64_t count) {
  const std::string prefix = (directory / "tokens").string();
  MegatronWriter writer(prefix, vocab);
  const Philox random(7, "benchmark tokens");
  std::vector<std::int32_t> tokens{1};
  for (std::int64_t i = 0; i < count; ++i) {
    const auto drawn = static_cast<std::int32_t>(random.below(vocab, static_cast<std::uint64_t>(i)));
    tokens.push_back(i % 2 ? (tokens.back() * 7 + 3) % vocab : drawn);
  }
  writer.add_document(tokens);
  writer.finish();
  return prefix;
}

void prefer_first_group(StagedModel& model, std::int64_t experts, std::int64_t groups) {
  bool found = false;
  for (const ParameterUnit* unit : model.units()) {
    for (const auto& parameter : unit->parameters()) {
      if (!parameter->name.ends_with("mlp/gate/weight")) continue;
      float* row = parameter->value.data<float>();
      std::for_each_n(row, experts / groups * parameter->value.shape()[1], [](float& weight) { weight *= skew; });
      found = true;
    }
  }
  require(found, "the model has no router");
}

/// Returns the busiest group's load divided by the mean load, averaged over the layers.
double imbalance_of_groups(const std::vector<RoutingSums>& layers, std::int64_t groups) {
  double sum = 0;
  for (const RoutingSums& layer : layers) {
    std::vector<double> load(static_cast<std::size_t>(groups));
    for (std::size_t i = 0; i < layer.counts.size(); ++i) {
      const std::int64_t expert = static_cast<std::int64_t>(i) % layer.experts;
      load[static_cast<std::size_t>(expert * groups / layer.experts)] += static_cast<double>(layer.counts[i]);
    }
    const double total = std::accumulate(load.begin(), load.end(), 0.0);
    sum += *std::max_element(load.begin(), load.end()) * static_cast<double>(groups) / total;
  }
  return sum / static_cast<double>(layers.size());
}

struct Curve {
  std::vector<double> imbalance, loss;  // per step
};

Curve train(const MpiSession& session, Config config, const TokenLoader& loader, int steps) {
  resolve(config, session.size());
  require_none(problems(config, session.size()));
  const auto setup = set_up(config, session);
  StagedModel model(config, setup->stream, setup->mesh, DType::f32, true);
  Zero zero(model.units(), setup->mesh, setup->stream, zero_options(config, setup->mesh));
  zero.initialize(config.run.seed);
  prefer_first_group(model, config.moe.experts, config.parallel.expert);
  Optimizer optimizer(config.optim, setup->mesh, setup->stream, zero.shares());
  optimizer.adopt_weights();
  TrainStep step(config, *setup, model, zero, optimizer);
  Curve curve;
  for (int s = 0; s < steps; ++s) {
    const StepResult done = step.run(loader, s, s * config.batch.global, 1e-3);
    curve.imbalance.push_back(imbalance_of_groups(done.loads, config.parallel.expert));
    curve.loss.push_back(done.loss);
  }
  return curve;
}

void print(const Curve& without, const Curve& with, double factor) {
  fmt::print("{:>5}  {:^19}  {:^19}\n", "", "busiest group/mean", "loss, nats per token");
  fmt::print("{:>5}  {:>9} {:>9}  {:>9} {:>9}\n", "step", "without", fmt::format("a2={:g}", factor), "without",
             fmt::format("a2={:g}", factor));
  const std::size_t steps = with.loss.size(), stride = std::max<std::size_t>(steps / 20, 1);
  for (std::size_t s = 0; s < steps; ++s) {
    if (s % stride && s + 1 != steps) continue;
    fmt::print("{:>5}  {:>9.3f} {:>9.3f}  {:>9.4f} {:>9.4f}\n", s + 1, without.imbalance[s], with.imbalance[s],
               without.loss[s], with.loss[s]);
  }
}

void write_csv(const std::string& path, const Curve& without, const Curve& with) {
  std::ofstream file(path);
  file << "step,imbalance_without,imbalance_with,loss_without,loss_with\n";
  for (std::size_t s = 0; s < with.loss.size(); ++s) {
    file << fmt::format("{},{},{},{},{}\n", s + 1, without.imbalance[s], with.imbalance[s], without.loss[s],
                        with.loss[s]);
  }
  require(file.flush().good(), "{}: cannot be written", path);
}

int run(const MpiSession& session, const std::vector<std::string>& arguments) {
  int steps = 300;
  double factor = 0.05;
  std::string csv;
  for (std::size_t i = 0; i + 1 < arguments.size(); i += 2) {
    if (arguments[i] == "--steps") steps = std::stoi(arguments[i + 1]);
    if (arguments[i] == "--factor") factor = std::stod(arguments[i + 1]);
    if (arguments[i] == "--csv") csv = arguments[i + 1];
  }
  const auto directory = std::filesystem::temp_directory_path() / fmt::format("lyceum-bench-{}", session.rank());
  std::filesystem::create_directories(directory);
  const std::int64_t samples = steps * batch;
  const TokenLoader loader(open_tokens(write_tokens(directory, samples * seq_len + 1)),
                           SampleOrder(SampleOrder::Kind::sequential, 1, 0, samples), seq_len);
  std::filesystem::remove_all(directory);  // the file remains mapped
  const Curve without = train(session, model_of(0, session.size()), loader, steps);
  const Curve with = train(session, model_of(factor, session.size()), loader, steps);
  if (session.rank() != 0) return 0;
  print(without, with, factor);
  if (!csv.empty()) write_csv(csv, without, with);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const MpiSession session;
  try {
    return run(session, {argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_device_balance: {}\n", error.what());
    session.abort(ExitCode::failed);
  }
}
