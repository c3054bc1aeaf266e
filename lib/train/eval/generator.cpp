#include "train/eval/generator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/cast.h"
#include "core/clock.h"
#include "core/copy.h"
#include "core/random.h"

namespace lyceum {

std::int32_t draw_token(std::span<const float> logits, const Sampling& sampling, double random) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::size_t keep = order.size();
  if (sampling.temperature <= 0) {
    keep = 1;
  } else if (sampling.top_k > 0) {
    keep = std::min(keep, static_cast<std::size_t>(sampling.top_k));
  }
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(keep), order.end(), likelier);
  std::vector<double> cumulative;
  double sum = 0;
  const float top = logits[static_cast<std::size_t>(order[0])];
  require(std::isfinite(top), "the model's logits are not finite: the checkpoint is unusable");
  for (std::size_t i = 0; i < keep; ++i) {
    const double difference = static_cast<double>(logits[static_cast<std::size_t>(order[i])]) - top;
    cumulative.push_back(sum += keep == 1 ? 1.0 : std::exp(difference / sampling.temperature));
  }
  if (sampling.top_p < 1) {
    keep = std::min<std::size_t>(keep,
                                 std::ranges::lower_bound(cumulative, sampling.top_p * sum) - cumulative.begin() + 1);
    cumulative.resize(keep);
    sum = cumulative.back();
  }
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), random * sum) - cumulative.begin();
  return order[std::min(static_cast<std::size_t>(chosen), keep - 1)];
}

void require_prompt_fits(std::size_t tokens, std::int64_t seq_len) {
  require_usage(tokens > 0 && static_cast<std::int64_t>(tokens) < seq_len,
                "a prompt of {} tokens: this model accepts 1 to {}", tokens, seq_len - 1);
}

double GenerationTimes::decoding() const { return std::accumulate(tokens.begin(), tokens.end(), 0.0); }

double GenerationTimes::median() const {
  if (tokens.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::vector<double> sorted = tokens;
  std::ranges::sort(sorted);
  return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
}

GenerationTimes generate(const Transformer& model, const Stream& stream, std::span<const std::int32_t> prompt,
                         std::span<const std::int32_t> ends, std::int64_t seq_len, const Sampling& sampling,
                         const std::function<bool(std::int32_t)>& sink) {
  const auto length = static_cast<std::int64_t>(prompt.size());
  require_prompt_fits(prompt.size(), seq_len);
  GenerationTimes times;
  std::vector<KeyValueCache> caches = model.new_caches(seq_len);
  const Philox random(sampling.seed, "generate");
  const auto read = [&](std::span<const std::int32_t> tokens) {  // waits for the device
    return values_of<float>(stream, cast(stream, model.next_logits(tokens, caches), DType::f32));
  };
  auto start = Clock::now();
  std::vector<float> scores = read(prompt);
  times.prompt = seconds_since(start);
  const std::int64_t most = std::min(sampling.tokens, seq_len - length);
  for (std::int64_t i = 0; i < most; ++i) {
    start = Clock::now();
    if (sampling.vocab > 0) scores.resize(std::min(scores.size(), static_cast<std::size_t>(sampling.vocab)));
    const std::int32_t token = draw_token(scores, sampling, random.uniform(static_cast<std::uint64_t>(i)));
    const double drawn = seconds_since(start);
    if (std::ranges::find(ends, token) != ends.end()) {
      times.end = GenerationEnd::token;
      times.end_token = token;
      break;
    }
    if (!sink(token)) {
      times.end = GenerationEnd::sink;
      break;
    }
    if (i + 1 == most) break;
    start = Clock::now();
    scores = read(std::span(&token, 1));
    times.tokens.push_back(drawn + seconds_since(start));
  }
  return times;
}

}  // namespace lyceum
