#include "train/eval/task_scores.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace lyceum {

namespace {

/// Standard error of the mean of n values of 0 and 1, from their sample variance n/(n − 1) · p(1 − p).
double standard_error(double p, std::int64_t n) {
  return n < 2 ? 0 : std::sqrt(p * (1 - p) / static_cast<double>(n - 1));
}

}  // namespace

TaskTokens encode_task(std::span<const TaskItem> items, const Tokenizer& tokenizer, const ContextStart& start,
                       std::int64_t seq_len) {
  TaskTokens encoded;
  for (const TaskItem& item : items) {
    for (std::size_t c = 0; c < item.choices.size(); ++c) {
      const ChoiceTokens tokens = encode_choice(tokenizer, item.context, item.choices[c], start);
      const std::int64_t scored = std::ssize(tokens.choice);
      require_input(scored > 0, "{}: choice {} adds no token to its context", item.location, c);
      require_input(scored <= seq_len, "{}: choice {} has {} tokens: this model accepts at most {} (batch.seq_len)",
                    item.location, c, scored, seq_len);
      ScoredSequence whole{.tokens = tokens.context, .scored = scored};
      whole.tokens.insert(whole.tokens.end(), tokens.choice.begin(), tokens.choice.end());
      const std::int64_t surplus = std::ssize(whole.tokens) - (seq_len + 1);
      if (surplus > 0) whole.tokens.erase(whole.tokens.begin(), whole.tokens.begin() + surplus);
      encoded.cut += surplus > 0 ? 1 : 0;
      encoded.choices.push_back(std::move(whole));
    }
  }
  return encoded;
}

TaskScores task_scores(std::span<const TaskItem> items, std::span<const double> log_probabilities) {
  std::int64_t right = 0, right_norm = 0;
  for (const TaskItem& item : items) {
    const std::span<const double> sums = log_probabilities.first(item.choices.size());
    log_probabilities = log_probabilities.subspan(item.choices.size());
    std::vector<double> per_byte;
    for (std::size_t c = 0; c < sums.size(); ++c) {
      per_byte.push_back(sums[c] / static_cast<double>(item.choices[c].size()));
    }
    right += std::ranges::max_element(sums) - sums.begin() == item.answer ? 1 : 0;
    right_norm += std::ranges::max_element(per_byte) - per_byte.begin() == item.answer ? 1 : 0;
  }
  TaskScores scores{.items = std::ssize(items)};
  const auto count = static_cast<double>(scores.items);
  scores.acc = static_cast<double>(right) / count;
  scores.acc_norm = static_cast<double>(right_norm) / count;
  scores.acc_stderr = standard_error(scores.acc, scores.items);
  scores.acc_norm_stderr = standard_error(scores.acc_norm, scores.items);
  return scores;
}

}  // namespace lyceum
