#pragma once

#include <memory>
#include <span>
#include <vector>

#include "model/transformer.h"
#include "parallel/pipeline/schedule.h"

namespace lyceum {

/// The pipeline stages of a model that are on this rank. The model is divided into parallel.pipeline ·
/// parallel.virtual_stages stages by stage_blocks(); stage s is on pipeline rank s mod parallel.pipeline.
class StagedModel {
 public:
  /// Parameters as for the constructor of Transformer.
  StagedModel(const Config& config, const Stream& stream, const Mesh& mesh, DType type, bool train,
              std::span<const ExpertLoad> measured = {});

  /// Returns the stages of this rank in forward order.
  std::span<const std::unique_ptr<Transformer>> stages() const { return stages_; }
  /// Returns the units of all stages of this rank in forward order.
  std::span<ParameterUnit* const> units() const { return units_; }
  /// Returns the number of layers of the whole model: input, blocks and output (with all modules).
  /// ParameterUnit::layer() is below this number.
  int layers() const { return layers_; }
  /// Returns Transformer::shared_table() of the stage that has one; null if no stage of this rank has one.
  ParameterUnit* shared_table() const;

  /// Calls Transformer::set_stage() of every pipeline stage of this rank.
  void set_stage(const Config& config);

  /// Writes the initial values of all parameters.
  void initialize(std::uint64_t seed);

  /// These functions call the function of Transformer with the same name on every stage of this rank. routing() and
  /// placed_experts() concatenate the results in forward order.
  std::vector<RoutingSums> routing() const;
  void count_routing(bool on);
  void skip_top(std::int64_t experts);
  void clear_routing();
  std::vector<PlacedExperts*> placed_experts() const;

 private:
  std::vector<std::unique_ptr<Transformer>> stages_;
  std::vector<ParameterUnit*> units_;
  int layers_;
};

}  // namespace lyceum
