// Measures what hot experts cost in expert parallelism, and what moves and replicas of experts gain:
//   mpirun -n 8 bench_hot_experts [--load SPEC]… [--option N]… [--json FILE]
// SPEC: a routing log (routing.h5), each record of which is a step; zipf:S, Zipf's law whose ranking of the experts
// drifts; uneven:S, the same with experts of uneven width; even. Default: even, zipf:1.2 and uneven:1.2.
//
// A step is forward and backward of some layers with several micro-batches. Everything is done as in training, but for
// the matrix products of the experts, in whose time a rank sleeps: FLOPs of its rows over an emulated rate, once in
// forward and twice in backward. So more ranks than cores can be measured, as long as the CPU use that is printed is
// well below 100 % and `late`, how much longer ranks slept than they should, is small.
//
// Each round is one step of the load with every remedy in turn, so noise of the machine affects all of them. Columns:
// - max/mean: FLOPs of the busiest rank over the mean, averaged over layers, micro-batches and rounds
// - weights, gradients: MB of replicas that all ranks send per step, as the expert group counts them. The program fails
//   if a number of bytes is not that of the plan; if the first or last element of a tensor of an expert or replica has
//   the value of another expert, element or step; or if its gradient is not that of the tokens
// - replicas ms: time per step of choosing replicas, of sending and awaiting their weights, and of returning their
//   gradients, mean over the ranks, including waits for the busiest rank
// - moves: MB that all ranks send for a move of experts before a step, mean over all moves; ms: time of a move
// - step ms: of the slowest rank, median, with the mean time of a move over --every; spread: interquartile range
// relative
//   to the median
// - balanced/step: time of a step in which experts are chosen equally often and ranks compute equally much, the mean
//   FLOPs of the load, over the time of the step; median of the ratio over rounds; spread: the same of the ratio
//
// Which experts a token combines is random. The program fails unless the tokens of even routing are sent to as many
// ranks as if all sets of experts were equally likely, within 2 % or four standard errors.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "expert_remedies.h"
#include "parallel/comm/mpi_session.h"
#include "parallel/expert/placement.h"
#include "remedies_report.h"
#include "routed_tokens.h"

namespace {

using namespace lyceum;

struct Options {
  std::vector<std::string> loads;
  std::string json;
  std::map<std::string, std::int64_t> numbers{
      {"--rounds", 8},         // measured steps
      {"--every", 4},          // steps between moves
      {"--tokens", 512},       // of a rank in a micro-batch
      {"--hidden", 256},       //
      {"--width", 160},        // mean width of the experts
      {"--micro-batches", 3},  // per step
      {"--layers", 2},         // at most, of a log
      {"--compute-ms", 0},     // mean time of the experts of a layer in forward; 0: 3 per rank
      {"--hosts", 1},          // tokens travel by way of this many hosts of consecutive ranks
      {"--first", 100},        // record of a log that is the first step; --every records before it are the past
      {"--experts", 64},       // of a synthetic load, as the next two
      {"--top-k", 6},          //
      {"--drift", 4},          // micro-batches until each expert rises one place
  };
  std::int64_t at(const char* name) const { return numbers.at(name); }
};

Options parsed(const std::vector<std::string>& words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    require_usage(i + 1 < words.size(), "{} needs a value", words[i]);
    const std::string& value = words[i + 1];
    if (words[i] == "--load") {
      options.loads.push_back(value);
    } else if (words[i] == "--json") {
      options.json = value;
    } else {
      const auto number = options.numbers.find(words[i]);
      require_usage(number != options.numbers.end(), "no such option: {}", words[i]);
      require_usage(!value.empty() && value.size() < 10 && value.find_first_not_of("0123456789") == std::string::npos,
                    "{} {}: not a number", words[i], value);
      number->second = std::stoll(value);
    }
  }
  for (const char* const name : {"--rounds", "--every", "--tokens", "--hidden", "--width", "--micro-batches",
                                 "--layers", "--hosts", "--experts", "--top-k", "--drift"}) {
    require_usage(options.at(name) > 0, "{} must be at least 1", name);
  }
  if (options.loads.empty()) options.loads = {"even", "zipf:1.2", "uneven:1.2"};
  return options;
}

RoutingLoad load_of(const std::string& spec, const Options& options) {
  const LoadShape shape{.experts = options.at("--experts"),
                        .top_k = options.at("--top-k"),
                        .layers = options.at("--layers"),
                        .micro_batches = options.at("--micro-batches")};
  const std::size_t colon = spec.find(':');
  const std::string kind = spec.substr(0, colon);
  if (kind == "even") return zipf_load(shape, 0, 1, false);
  if (kind != "zipf" && kind != "uneven") {
    const LogWindow window{
        .first = options.at("--first"), .past = options.at("--every"), .steps = options.at("--rounds")};
    return logged_load(spec, window, options.at("--layers"));
  }
  require_usage(colon != std::string::npos, "--load {}: an exponent must follow, for example {}:1.2", spec, kind);
  char* end = nullptr;
  const double exponent = std::strtod(spec.c_str() + colon + 1, &end);
  require_usage(end != spec.c_str() + colon + 1 && *end == '\0', "--load {}: not an exponent", spec);
  return zipf_load(shape, exponent, options.at("--drift"), kind == "uneven");
}

/// Returns the mean FLOPs of a rank in the forward pass: [micro-batches][layers].
std::vector<std::vector<double>> mean_flops(const RoutedStep& routed, const EmulatedExperts::Sizes& sizes, int ranks) {
  std::vector<std::vector<double>> flops;
  for (const auto& micro_batch : routed.counts) {
    std::vector<double>& of_layers = flops.emplace_back();
    for (const std::vector<std::int64_t>& experts : micro_batch) {
      double sum = 0;
      for (std::size_t e = 0; e < experts.size(); ++e) sum += static_cast<double>(experts[e]) * sizes.flops(e);
      of_layers.push_back(sum / ranks);
    }
  }
  return flops;
}

/// Counts the ranks to which tokens are sent with even routing.
class EvenRouting {
 public:
  EvenRouting(const ProcessGroup& group, const RoutingLoad& load)
      : group_(group), top_k_(load.top_k), placement_(Placement::contiguous(load.experts(), group.size())) {}
  void add(const RoutedStep& routed) {
    for (const auto& micro_batch : routed.choices) {
      for (const std::vector<std::int32_t>& choices : micro_batch) {
        sums_[0] += std::ssize(choices) / top_k_;
        sums_[1] += remote_pairs(choices, top_k_, placement_, group_.rank());
      }
    }
  }
  /// Collective. Returns the mean number of remote ranks per token of all ranks. Throws an Error if it is not the
  /// expected one, within 2 % or four standard errors. The variance of a number of ranks is less than its expectation.
  double checked_mean() const {
    std::array<std::int64_t, 2> sums = sums_;
    group_.all_reduce(std::span(sums));
    const auto tokens = static_cast<double>(sums[0]);
    const double mean = static_cast<double>(sums[1]) / tokens, expected = expected_remote_pairs(top_k_, placement_),
                 tolerance = std::max(0.02 * expected, 4 * std::sqrt(expected / tokens));
    require(std::abs(mean - expected) <= tolerance, "even routing sends a token to {} other ranks, expected are {}",
            mean, expected);
    return mean;
  }

 private:
  const ProcessGroup& group_;
  std::int64_t top_k_;
  Placement placement_;
  std::array<std::int64_t, 2> sums_{};  // tokens, pairs of a token and a rank
};

/// Collective. Measures all remedies under one load.
Measurement measure(const Mesh& mesh, const RoutingLoad& load, const RoutingLoad& even, const StepShape& shape,
                    std::int64_t rounds) {
  const Stream stream = CpuStream(1);
  std::vector<std::unique_ptr<RemediedExperts>> cases;
  for (const Remedy& remedy : remedies()) {
    cases.push_back(std::make_unique<RemediedExperts>(mesh, stream, remedy, load, shape));
  }
  const EmulatedExperts::Sizes sizes{.hidden = shape.hidden,
                                     .top_k = load.top_k,
                                     .widths = widths_of(load, shape.widths),
                                     .replicas = 0,
                                     .host_ranks = 0};
  Measurement result{.shape = shape, .series = std::vector<Series>(cases.size())};
  const TokenShape tokens = tokens_of(shape, mesh.expert);
  EvenRouting even_routing(mesh.expert, load);
  for (std::int64_t step = -1; step < rounds; ++step) {  // the first one warms up
    const RoutedStep routed = routed_step(load, tokens, step), balanced = routed_step(even, tokens, step);
    even_routing.add(balanced);
    const std::vector<std::vector<double>> flops = mean_flops(routed, sizes, tokens.ranks);
    for (std::size_t c = 0; c < cases.size(); ++c) {
      RemediedExperts& one = *cases[c];
      if (one.remedy().moves && step >= 0 && step % shape.every == 0) {
        result.series[c].moves.push_back(one.move(load, step));
      }
      const StepResult done = one.run(one.remedy().forced_balance ? balanced : routed, flops, step);
      if (step >= 0) result.series[c].steps.push_back(done);
    }
    if (step < 0) continue;
    for (const std::vector<double>& micro_batch : flops) {
      for (const double each : micro_batch) result.emulated += 3 * each / shape.rate / static_cast<double>(rounds);
    }
  }
  result.even_remote_ranks = even_routing.checked_mean();
  return result;
}

int run(const MpiSession& session, const Options& options) {
  const int ranks = session.size();
  require_usage(ranks > 1, "one rank has all experts: use mpirun -n 8");
  const Mesh mesh =
      Mesh::create(session.world(300), {.expert = ranks, .expert_hosts = static_cast<int>(options.at("--hosts"))});
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const std::string& spec : options.loads) {
    const RoutingLoad load = load_of(spec, options);
    RoutingLoad even = load;
    even.by_step = false;
    even.tokens = [&load](std::int64_t, std::int64_t, std::int64_t) {
      return std::vector<double>(load.sizes.size(), 1);
    };
    StepShape shape{.tokens = options.at("--tokens"),
                    .hidden = options.at("--hidden"),
                    .micro_batches = options.at("--micro-batches"),
                    .widths = options.at("--width"),
                    .every = options.at("--every"),
                    .host_ranks = mesh.expert_hosts ? mesh.expert_hosts->within.size() : session.host_ranks(),
                    .rate = 0};
    const double milliseconds =
        static_cast<double>(options.at("--compute-ms") > 0 ? options.at("--compute-ms") : 3 * ranks);
    shape.rate = 6e3 * static_cast<double>(shape.tokens * load.top_k * shape.hidden * shape.widths) / milliseconds;
    const Measurement measured = measure(mesh, load, even, shape, options.at("--rounds"));
    if (session.rank() == 0) {
      results.push_back(report(load, measured, ranks));
      for (const auto& [name, value] : options.numbers) results.back()["options"][name.substr(2)] = value;
    }
  }
  if (session.rank() == 0 && !options.json.empty()) {
    std::ofstream file(options.json);
    file << results.dump(1) << '\n';
    require(file.flush().good(), "{}: cannot be written", options.json);
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const MpiSession session;
  try {
    return run(session, parsed({arguments + 1, arguments + count}));
  } catch (const Error& error) {
    session.report({.code = error.code(), .line = fmt::format("bench_hot_experts: {}", error.what())});
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_hot_experts: {}\n", error.what());
    session.abort(ExitCode::failed);
  }
}
