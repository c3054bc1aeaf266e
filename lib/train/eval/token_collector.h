#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/range.h"
#include "io/data/loader/token_loader.h"
#include "io/routing/token_log.h"
#include "model/staged_model.h"
#include "train/setup/run_setup.h"

namespace lyceum {

/// Sends what an evaluation records about its tokens to rank 0, which writes it down in their order, whatever the mesh.
class TokenCollector {
 public:
  /// Collective over the world. `log`: on its rank 0; null on the others. Of a model of that resolved configuration.
  TokenCollector(const RunSetup& setup, const Config& config, const StagedModel& model, TokenLog* log);

  /// What this rank has of a micro-batch that has passed all stages.
  struct Seen {
    Range samples;                        // positions of the order that is evaluated; none where they do not count
    Range run;                            // of their tokens: those that this rank routes
    Tensor losses{};                      // of all their tokens, in the last stage
    std::vector<ChosenExperts> chosen{};  // of the run, in the order of forward
  };
  /// Collective over the world: everything of as many micro-batches as all others give. `loader`: their samples.
  void collect(const TokenLoader& loader, std::span<const Seen> seen);

 private:
  /// Of a rank: whether it routes for each mixture; whether it has losses.
  const std::int64_t* held_by(int rank) const;
  void send(std::span<const Seen> seen) const;
  Seen received(int rank, const Range& samples, const Range& run) const;
  void write(const TokenLoader& loader, int rank, const Seen& seen) const;
  void write_tokens(const TokenLoader& loader, const Range& samples) const;

  const RunSetup& setup_;
  const Config& config_;
  DType type_;  // of losses and gates
  TokenLog* log_;
  std::vector<Mixture> mixtures_;   // of the whole model, in the order of forward
  std::vector<std::int64_t> held_;  // [ranks, mixtures + 1]
};

/// What a token log of the model says of its routers.
std::vector<TokenLogLayer> token_log_layers(const Config& config);

}  // namespace lyceum
