#pragma once

#include <memory>
#include <span>
#include <vector>

#include "model/transformer.h"
#include "parallel/pipeline/schedule.h"

namespace lyceum {

/// What this rank holds of a model that is divided into parallel.pipeline · parallel.virtual_stages stages, see
/// stage_blocks().
class StagedModel {
 public:
  /// As Transformer's.
  StagedModel(const Config& config, const Stream& stream, const Mesh& mesh, DType type, bool train,
              std::span<const ExpertLoad> measured = {});

  /// Of this rank, in the order of forward.
  std::span<const std::unique_ptr<Transformer>> stages() const { return stages_; }
  /// Of all its stages, likewise.
  std::span<ParameterUnit* const> units() const { return units_; }
  /// Input, blocks and output of the whole model: ParameterUnit::layer() is below.
  int layers() const { return layers_; }
  /// The unit with Transformer::shared_table(); null where no stage of this rank has one.
  ParameterUnit* shared_table() const;

  void initialize(std::uint64_t seed);

  /// As Transformer's, of the mixtures on this rank.
  std::vector<RoutingSums> routing() const;
  void count_routing(bool on);
  void skip_top(std::int64_t experts);
  void clear_routing();

 private:
  std::vector<std::unique_ptr<Transformer>> stages_;
  std::vector<ParameterUnit*> units_;
  int layers_;
};

}  // namespace lyceum
