#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// y[t] = table[tokens[t]], y [tokens, hidden]. The table may be a part of a larger vocabulary: tokens of other parts
/// give zeros, so that the sum over all parts is the embedding.
struct Embedding {
  Parameter* table;         // [words, hidden]
  Tensor tokens;            // i32, each below vocab
  std::int64_t first = 0;   // word of the table's first row
  std::int64_t vocab = -1;  // words of all parts; −1: first + words

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved) const;
  std::array<Tensor, 0> backward(const Stream&, Saved&, const Tensor&) const { return {}; }
  std::vector<Parameter*> parameters() const { return {table}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
