/// Measures routing logs of large models, with synthetic records:
///   bench_routing_log FILE [--records 100] [--layers 60] [--experts 256] [--top-k 8] [--tokens 4000000] [--resume]
/// Appends records to a new log, or with --resume to an existing one. Prints the time of opening it and of the first
/// record, the median time of a record, the size of the file and the largest memory of this process. The tokens of a
/// record are distributed over a layer's experts by Zipf's law, less unevenly for later choices, with the noise of
/// independent tokens.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "io/files/hdf5.h"
#include "io/routing/log.h"

namespace {

using namespace lyceum;
using Clock = std::chrono::steady_clock;

struct Sizes {
  std::int64_t records = 100, layers = 60, experts = 256, top_k = 8, tokens = 4'000'000;
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Generates records of one log.
class Generator {
 public:
  explicit Generator(const Sizes& sizes) : sizes_(sizes) {
    for (std::int64_t l = 0; l < sizes.layers; ++l) {
      std::vector<double>& rank = ranks_.emplace_back(static_cast<std::size_t>(sizes.experts));
      std::iota(rank.begin(), rank.end(), 1.0);
      std::shuffle(rank.begin(), rank.end(), random_);
    }
  }
  std::vector<LayerRouting> next() {
    std::vector<LayerRouting> record;
    for (std::int64_t l = 0; l < sizes_.layers; ++l) {
      record.push_back(
          {.id = {l}, .top_k = sizes_.top_k, .experts = sizes_.experts, .counts = {}, .mean_probability = {}});
      for (std::int64_t k = 0; k < sizes_.top_k; ++k) add_choice(ranks_[static_cast<std::size_t>(l)], k, record.back());
      const double all = static_cast<double>(sizes_.tokens * sizes_.top_k);
      for (std::int64_t e = 0; e < sizes_.experts; ++e) {
        std::int64_t tokens = 0;
        for (std::int64_t k = 0; k < sizes_.top_k; ++k) {
          tokens += record.back().counts[static_cast<std::size_t>(k * sizes_.experts + e)];
        }
        record.back().mean_probability.push_back(static_cast<float>(static_cast<double>(tokens) / all));
      }
    }
    return record;
  }

 private:
  /// Adds the counts of the k-th choice. Their sum is the number of tokens.
  void add_choice(const std::vector<double>& rank, std::int64_t k, LayerRouting& layer) {
    const double power = 1 - static_cast<double>(k) / static_cast<double>(sizes_.top_k);
    std::vector<double> share;
    for (const double r : rank) share.push_back(std::pow(r, -power));
    const double sum = std::accumulate(share.begin(), share.end(), 0.0);
    std::int64_t left = sizes_.tokens;
    double left_share = sum;
    for (const double s : share) {  // a multinomial distribution, as a chain of binomial ones
      const double p = std::clamp(s / left_share, 0.0, 1.0), mean = static_cast<double>(left) * p;
      const double count = mean + std::sqrt(mean * (1 - p)) * normal_(random_);
      layer.counts.push_back(std::clamp<std::int64_t>(std::llround(count), 0, left));
      left -= layer.counts.back();
      left_share = std::max(left_share - s, 1e-300);
    }
    layer.counts.back() += left;
  }

  Sizes sizes_;
  std::mt19937_64 random_{1};
  std::normal_distribution<double> normal_;
  std::vector<std::vector<double>> ranks_;  // for each layer, the popularity of each expert
};

std::int64_t last_step_of(const std::filesystem::path& file) {
  const hdf5::File log = hdf5::File::open(file);
  const std::vector<std::int64_t> steps = log.dataset("/step").read<std::int64_t>();
  return steps.empty() ? -1 : steps.back();
}

void measure(const std::filesystem::path& file, const Sizes& sizes, bool resume) {
  Generator generator(sizes);
  std::vector<RoutingLog::Layer> layers;
  for (std::int64_t l = 0; l < sizes.layers; ++l) {
    const auto experts = static_cast<std::size_t>(sizes.experts);
    layers.push_back({.id = {l},
                      .top_k = sizes.top_k,
                      .expert_sizes = std::vector<std::int64_t>(experts, 2048),
                      .expert_rank = std::vector<std::int64_t>(experts, 0)});
  }
  const std::int64_t last = resume ? last_step_of(file) : -1;
  const auto start = Clock::now();
  RoutingLog log(file, layers, last);
  const double opened = seconds_since(start);
  std::vector<double> times;
  for (std::int64_t r = 1; r <= sizes.records; ++r) {
    const std::vector<LayerRouting> record = generator.next();
    const auto begin = Clock::now();
    log.append(std::max<std::int64_t>(last, 0) + r, record);
    times.push_back(seconds_since(begin));
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double first = times.empty() ? 0 : times.front();
  std::ranges::sort(times);
  fmt::print("opened in {:.3f} s, first record {:.3f} s, median record {:.3f} s, slowest {:.3f} s\n", opened, first,
             times.empty() ? 0 : times[times.size() / 2], times.empty() ? 0 : times.back());
  fmt::print("{} bytes in the file, largest memory {} KiB\n", std::filesystem::file_size(file), usage.ru_maxrss);
}

}  // namespace

int main(int count, char** arguments) {
  Sizes sizes;
  bool resume = false;
  const std::map<std::string, std::int64_t*> numbers{{"--records", &sizes.records},
                                                     {"--layers", &sizes.layers},
                                                     {"--experts", &sizes.experts},
                                                     {"--top-k", &sizes.top_k},
                                                     {"--tokens", &sizes.tokens}};
  std::vector<std::string> words(arguments + 1, arguments + count);
  bool valid = !words.empty() && !words[0].starts_with("--");
  for (std::size_t i = 1; valid && i < words.size(); ++i) {
    if (words[i] == "--resume") {
      resume = true;
      continue;
    }
    const auto number = numbers.find(words[i]);
    valid = number != numbers.end() && i + 1 < words.size();
    if (!valid) break;
    const std::string& text = words[++i];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number->second);
    valid = error == std::errc() && end == text.data() + text.size() &&
            *number->second >= (number->first == "--records" ? 0 : 1);
  }
  if (!valid) {
    fmt::print(stderr,
               "usage: bench_routing_log FILE [--records N] [--layers N] [--experts N] [--top-k N] [--tokens N] "
               "[--resume]\n");
    return 2;
  }
  try {
    measure(words[0], sizes, resume);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_routing_log: {}\n", error.what());
    return 4;
  }
  return 0;
}
