#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "model/transformer.h"

namespace lyceum {

/// How generate() draws tokens.
struct Sampling {
  std::int64_t tokens = 100;  // generated at most
  double temperature = 0.8;   // 0: always draw the most likely token
  std::int64_t top_k = 40;    // draw from the k most likely tokens; 0: from all
  double top_p = 1;           // draw from the fewest of these whose probabilities sum to at least top_p
  std::uint64_t seed = 1;
  std::int64_t vocab = 0;  // draw from tokens below this only, if the model has more than its tokenizer; 0: all
};

/// The reason why a generation ended: `token`: one of the ends was drawn; `sink`: the sink returned false; `length`:
/// all requested tokens were generated, or the sequence is full.
enum class GenerationEnd { token, sink, length };

/// The duration of a generation, without the time that `sink` takes, and the reason why it ended.
struct GenerationTimes {
  double prompt = 0;           // seconds for the pass over the prompt
  std::vector<double> tokens;  // seconds to draw a token and compute the logits of the next; no entry for the last one
  GenerationEnd end = GenerationEnd::length;
  std::optional<std::int32_t> end_token;  // the token of `ends` that was drawn, for GenerationEnd::token
  double decoding() const;                // sum of `tokens`
  double median() const;                  // median of `tokens`; NaN if empty
};

/// Returns the token that a random number in [0, 1) draws. `logits` [vocab]. Throws if the largest logit is not finite.
std::int32_t draw_token(std::span<const float> logits, const Sampling& sampling, double random);

/// Throws a usage Error if a prompt of `tokens` tokens is empty or not shorter than `seq_len`.
void require_prompt_fits(std::size_t tokens, std::int64_t seq_len);

/// Continues `prompt` token by token and passes each new token to `sink`. Ends if a token of `ends` is drawn (it is not
/// passed on), if `sink` returns false, after sampling.tokens tokens, or if the sequence has `seq_len` tokens. Keys and
/// values are cached. Token i is drawn with random number i of the seed. Throws as require_prompt_fits() and
/// draw_token() do.
GenerationTimes generate(const Transformer& model, const Stream& stream, std::span<const std::int32_t> prompt,
                         std::span<const std::int32_t> ends, std::int64_t seq_len, const Sampling& sampling,
                         const std::function<bool(std::int32_t)>& sink);

}  // namespace lyceum
