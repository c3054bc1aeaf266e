#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "model/transformer.h"

namespace lyceum {

struct Sampling {
  std::int64_t tokens = 100;  // to make at most
  double temperature = 0.8;   // 0: always the most likely
  std::int64_t top_k = 40;    // drawn from the k most likely; 0: from all
  double top_p = 1;           // of these from the most likely that together have this probability
  std::uint64_t seed = 1;
  std::int64_t vocab = 0;  // drawn from the tokens below, as a model's table may have more than its tokenizer; 0: all
};

/// The reason why a generation ended.
enum class GenerationEnd { token, sink, length };

/// How long it took, what `sink` does with a token not counted, and how it ended.
struct GenerationTimes {
  double prompt = 0;           // seconds until the first token could be drawn
  std::vector<double> tokens;  // then for each that was drawn, until the next one could be; none for the last
  GenerationEnd end = GenerationEnd::length;
  std::optional<std::int32_t> end_token;  // for GenerationEnd::token
  double decoding() const;                // their sum
  double median() const;                  // of them; NaN of none
};

/// Returns the token that a random number of [0, 1) draws.
std::int32_t draw_token(std::span<const float> logits, const Sampling& sampling, double random);

/// Throws a usage Error unless a prompt of `tokens` is not empty and is shorter than `seq_len`.
void require_prompt_fits(std::size_t tokens, std::int64_t seq_len);

/// Goes on from `prompt` until one of `ends` is drawn, `sink` returns false, the count is reached or the model's
/// sequence is full; calls `sink` with each token before that. Keys and values are cached. Token i is drawn with random
/// number i of the seed.
GenerationTimes generate(const Transformer& model, const Stream& stream, std::span<const std::int32_t> prompt,
                         std::span<const std::int32_t> ends, std::int64_t seq_len, const Sampling& sampling,
                         const std::function<bool(std::int32_t)>& sink);

}  // namespace lyceum
