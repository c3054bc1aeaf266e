#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// y[t] = table[tokens[t]], y [tokens, hidden]. The table may be one rank's slice of the vocabulary. Tokens outside it
/// give zeros, so the sum of y over all slices is the embedding. Throws an Error if a token is not in [0, vocab); on a
/// GPU, the next CudaStream::synchronise() throws it.
struct Embedding {
  Parameter* table;         // [words, hidden]
  Tensor tokens;            // i32 [tokens], in [0, vocab)
  std::int64_t first = 0;   // vocabulary index of the table's first row
  std::int64_t vocab = -1;  // size of the whole vocabulary; −1: first + rows of the table

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved) const;
  std::array<Tensor, 0> backward(const Stream&, Saved&, const Tensor&) const { return {}; }
  std::vector<Parameter*> parameters() const { return {table}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
