#pragma once

#include <cstdint>
#include <vector>

#include "autograd/attention.h"
#include "autograd/routing.h"
#include "autograd/tape.h"
#include "config/balance.h"
#include "config/model.h"
#include "core/error.h"
#include "model/routing/balance_loss.h"
#include "model/routing/mixture.h"
#include "model/routing/running_loads.h"
#include "model/token_batch.h"
#include "parallel/tensor/token_layout.h"

namespace lyceum {

class PlacedExperts;
class Router;

/// One pass of tokens through the blocks, as every sub-layer sees it.
struct Pass {
  TokenBatch batch;
  TokenLayout layout;   // distribution of the batch's tokens over the tensor ranks
  Tensor rope;          // table of RopeTable, in accumulator type; undefined if attention has no rotary positions
  bool counts = true;   // routers add to their tallies
  bool limits = false;  // moe.capacity_factor applies
  /// Routers of FFNs skip this many of the best experts of each token, to measure what these contribute.
  std::int64_t skip_top = 0;
  /// Cache of this block if the pass continues one sequence (generation); such a pass has no gradient. Null otherwise.
  KeyValueCache* cache = nullptr;

  /// True for a pass of a training step.
  bool training() const { return batch.training(); }
  /// Returns the sums of loads of the step so far, in a training step with balance.scope = global; undefined otherwise.
  RunningLoads::Sums running_loads(BalanceScope scope, const MixtureId& id, RunningLoads::Of of) const {
    if (scope != BalanceScope::global) return {};
    require(batch.running_loads, "a training step with balance.scope = global has no sums of loads");
    return batch.running_loads->at(id, of, batch.pass);
  }
};

/// Half of a block: attention or FFN, the part between a norm and a residual connection.
class Sublayer {
 public:
  struct Result {
    Variable y;
    /// Each loss is summed over the sequences of the pass; it is the same on all ranks of the tensor group.
    std::vector<Loss> losses{};
  };
  virtual ~Sublayer() = default;
  /// Computes y from x, both [rows, hidden] in the layout between matrices (see TokenLayout). Collective over the ranks
  /// that share the layer.
  virtual Result forward(Tape& tape, const Pass& pass, const Variable& x) const = 0;
  /// Continues with the values of another training stage, see Transformer::set_stage(). A sub-layer that keeps a value
  /// of a key that a stage may change must replace it.
  virtual void set_stage(const ModelConfig&) {}
  /// Returns the description of the choices of its router; null if the sub-layer has no router.
  virtual const Mixture* mixture() const { return nullptr; }
  /// Returns its router; null if it has none.
  virtual const Router* router() const { return nullptr; }
  /// Returns this rank's part of the matrix whose product is the sub-layer's result, for the regulariser of learnt
  /// dropout rates; null if several matrices contribute to the result.
  virtual Parameter* output_matrix() const { return nullptr; }
  /// Returns its experts that are divided among ranks; null if it has none.
  virtual PlacedExperts* placed_experts() { return nullptr; }
  /// Sets the tally to which forward adds the routing of this rank's range of tokens. Ignored by sub-layers without a
  /// router.
  virtual void set_tally(const RoutingTally&) {}
};

}  // namespace lyceum
