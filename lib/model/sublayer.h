#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autograd/attention.h"
#include "autograd/routing.h"
#include "autograd/tape.h"
#include "model/balance_loss.h"
#include "model/mixture.h"
#include "parallel/tensor/token_layout.h"

namespace lyceum {

class Router;

/// What a router chose, of its run of the tokens.
struct ChosenExperts {
  MixtureId id;
  Tensor index, gates;  // as Router::Choices: i32, and the accumulator's type, [tokens, k]
};

/// What half of a block read and gave, before the residual is added: [rows, hidden], in the layout between matrices.
struct SublayerValues {
  MixtureId id;
  TokenLayout layout;
  Tensor x, y;
};
using SublayerObserver = std::function<void(const SublayerValues&)>;

/// A pass of tokens through blocks, as every sub-layer sees it.
struct Pass {
  TokenLayout layout;
  Tensor rope;  // table of RopeTable, accumulator type; undefined where attention has no positions
  /// i32 [layout.tokens()]: see FirstKeys. Undefined: a sequence is one document.
  Tensor first_keys{};
  /// i32 [layout.tokens()]: the input tokens, those of a router's run from layout.own().first on. Undefined in a stage
  /// that does not read tokens.
  Tensor tokens{};
  /// Place of tokens[0] in the step's global batch, among the tokens that an evaluation reads, or in a generated text.
  std::int64_t first_token = 0;
  /// f64 [1], where the model computes, so that recorded work reads it anew: training steps before this one. Undefined
  /// outside of training.
  Tensor step{};
  /// f64 [1], likewise: experts of an FFN that a token chooses. Undefined: as many as the mixture says.
  Tensor choices{};
  bool counts = true;         // whether routers add to their tallies
  bool limits = false;        // whether moe.capacity_factor holds
  std::int64_t skip_top = 0;  // best experts of a token that FFNs' routers pass over, to learn what they are worth
  std::vector<ChosenExperts>* chosen = nullptr;  // where routers put what they choose, for who asks
  const SublayerObserver* observer = nullptr;    // gets the values of each half of each block, for who asks
  KeyValueCache* cache = nullptr;  // of this block, where one sequence continues from it; no gradient then

  bool training() const { return step.defined(); }
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
