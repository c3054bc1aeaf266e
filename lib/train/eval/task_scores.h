#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/data/encoding/choice_tokens.h"
#include "io/data/records/task_items.h"
#include "io/data/tokenizer/tokenizer.h"
#include "train/eval/sequence_scores.h"

namespace lyceum {

/// The items of a task in tokens.
struct TaskTokens {
  std::vector<ScoredSequence> choices;  // of all items, in order: the context and one choice
  std::int64_t cut = 0;                 // number of these whose context was cut
};
/// Encodes each choice of each item with encode_choice(). Only the last `seq_len` + 1 tokens are kept: a longer context
/// is cut at its beginning, as lm-evaluation-harness does (`_loglikelihood_tokens` of lm_eval/models/huggingface.py).
/// Throws a bad_input Error that names the line if a choice has no tokens or more than `seq_len`.
TaskTokens encode_task(std::span<const TaskItem> items, const Tokenizer& tokenizer, const ContextStart& start,
                       std::int64_t seq_len);

/// The share of items that a model answers correctly, 0 to 1, in two ways.
struct TaskScores {
  std::int64_t items = 0;
  double acc = 0;       // the answer is the choice with the largest sum of log-probabilities
  double acc_norm = 0;  // … with the largest sum per byte of the choice's text
  /// Standard errors of both: the standard deviation over items, divided by √items; 0 for one item.
  double acc_stderr = 0, acc_norm_stderr = 0;
};
/// `log_probabilities`: one per choice of all items, in order. The first one of equal sums is the answer.
TaskScores task_scores(std::span<const TaskItem> items, std::span<const double> log_probabilities);

}  // namespace lyceum
