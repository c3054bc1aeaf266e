#pragma once

#include "autograd/tape.h"
#include "core/range.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// CrossEntropy on logits whose words the ranks of a group share: logits [tokens, words of this rank]. The ranks send
/// each other three numbers a token, forwards only; all get the same loss, which counts once, and backward turns the
/// logits into their gradient in place.
struct VocabularyCrossEntropy {
  Tensor targets;  // i32 [tokens], in the whole vocabulary
  const ProcessGroup* group;
  Range words;  // this rank's
  std::int64_t vocab;

  struct Saved {
    Tensor logits, log_sum_exp;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& logits) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
