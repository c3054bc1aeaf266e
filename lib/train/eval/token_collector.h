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

/// Sends the losses and routing choices of evaluated tokens to rank 0, which writes them to a token log. The log does
/// not depend on the mesh: its rows are in the order of the evaluation.
class TokenCollector {
 public:
  /// Collective over the world. `config`: the resolved configuration of `model`. `log`: the log on rank 0, null on all
  /// other ranks. `setup`, `config` and `log` must outlive the collector.
  TokenCollector(const RunSetup& setup, const Config& config, const StagedModel& model, TokenLog* log);

  /// The data that this rank has about one micro-batch after the micro-batch has passed all stages.
  struct MicroBatchRecord {
    Range samples;     // positions in the order of the evaluation; empty if it is not counted
    Range own_tokens;  // tokens of the micro-batch that this rank routes
    Tensor losses{};   // [tokens of the micro-batch]; only on ranks that have the last stage
    /// The choices for own_tokens, one element per mixture of this rank, in forward order.
    std::vector<ChosenExperts> chosen{};
  };
  /// Collective over the world. Writes the data of all ranks about their micro-batches. All ranks must pass the same
  /// number of micro-batches. `loader`: has the samples of the evaluation.
  void collect(const TokenLoader& loader, std::span<const MicroBatchRecord> seen);

 private:
  /// Returns the row of held_ for `rank`: mixtures + 1 flags.
  const std::int64_t* held_flags(int rank) const;
  void send(std::span<const MicroBatchRecord> seen) const;
  MicroBatchRecord receive(int rank, const Range& samples, const Range& own_tokens) const;
  void write(const TokenLoader& loader, int rank, const MicroBatchRecord& seen) const;
  void write_tokens(const TokenLoader& loader, const Range& samples) const;

  const RunSetup& setup_;
  const Config& config_;
  DType type_;  // type of losses and gates
  TokenLog* log_;
  std::vector<Mixture> mixtures_;  // mixtures of the whole model, in forward order
  /// [ranks, mixtures + 1]: for each rank, a flag per mixture that is 1 if the rank has choices of it; then a flag that
  /// is 1 if the rank sends losses.
  std::vector<std::int64_t> held_;
};

/// Returns the description of each router of the model for a token log, in forward order.
std::vector<TokenLogLayer> token_log_layers(const Config& config);

}  // namespace lyceum
