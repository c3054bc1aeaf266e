#pragma once

#include <cstdint>
#include <vector>

#include "autograd/attention.h"
#include "autograd/routing.h"
#include "autograd/tape.h"
#include "model/routing/balance_loss.h"
#include "model/routing/mixture.h"
#include "model/token_batch.h"
#include "parallel/tensor/token_layout.h"

namespace lyceum {

class Router;

/// A pass of tokens through blocks, as every sub-layer sees it.
struct Pass {
  TokenBatch batch;
  TokenLayout layout;         // of the batch's tokens on the tensor ranks
  Tensor rope;                // table of RopeTable, accumulator type; undefined if attention has no positions
  bool counts = true;         // routers add to their tallies
  bool limits = false;        // moe.capacity_factor applies
  std::int64_t skip_top = 0;  // best experts of a token that FFNs' routers pass over, to measure what they contribute
  KeyValueCache* cache = nullptr;  // of this block, if one sequence continues from it; no gradient then

  bool training() const { return batch.training(); }
};

/// Half of a block: what is between a norm and a residual connection.
class Sublayer {
 public:
  struct Result {
    Variable y;
    std::vector<Loss> losses{};  // over the sequences of this rank, the same on all ranks of its tensor group
  };
  virtual ~Sublayer() = default;
  /// x, and y, as they lie between matrices: [rows, hidden].
  virtual Result forward(Tape& tape, const Pass& pass, const Variable& x) const = 0;
  /// What its router chooses from; null without one.
  virtual const Mixture* mixture() const { return nullptr; }
  virtual const Router* router() const { return nullptr; }
  /// Where forward adds what the router does with this rank's run of the tokens.
  virtual void set_tally(const RoutingTally&) {}
};

}  // namespace lyceum
