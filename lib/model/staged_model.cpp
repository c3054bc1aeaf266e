#include "model/staged_model.h"

#include "model/stages.h"

namespace lyceum {

StagedModel::StagedModel(const Config& config, const Stream& stream, const Mesh& mesh, DType type, bool train,
                         std::span<const ExpertLoad> measured)
    : layers_(static_cast<int>(config.model.layers) + 2) {
  const int ranks = mesh.pipeline.size(), count = ranks * config.parallel.virtual_stages;
  const std::vector<Range> blocks = stage_blocks(config, count);
  for (int stage = mesh.pipeline.rank(); stage < count; stage += ranks) {
    const StageParts own = parts_of(config, blocks[static_cast<std::size_t>(stage)]);
    stages_.push_back(std::make_unique<Transformer>(config, stream, mesh, type, train, own, measured));
    const auto units = stages_.back()->units();
    units_.insert(units_.end(), units.begin(), units.end());
  }
}

ParameterUnit* StagedModel::shared_table() const {
  for (const auto& stage : stages_) {
    if (stage->shared_table()) return stage->shared_table();
  }
  return nullptr;
}

void StagedModel::set_stage(const Config& config) {
  for (const auto& stage : stages_) stage->set_stage(config);
}

void StagedModel::initialize(std::uint64_t seed) {
  for (const auto& stage : stages_) stage->initialize(seed);
}

std::vector<RoutingSums> StagedModel::routing() const {
  std::vector<RoutingSums> all;
  for (const auto& stage : stages_) {
    for (RoutingSums& sums : stage->routing()) all.push_back(std::move(sums));
  }
  return all;
}

void StagedModel::count_routing(bool on) {
  for (const auto& stage : stages_) stage->count_routing(on);
}

void StagedModel::skip_top(std::int64_t experts) {
  for (const auto& stage : stages_) stage->skip_top(experts);
}

void StagedModel::clear_routing() {
  for (const auto& stage : stages_) stage->clear_routing();
}

std::vector<PlacedExperts*> StagedModel::placed_experts() const {
  std::vector<PlacedExperts*> all;
  for (const auto& stage : stages_) {
    for (PlacedExperts* const experts : stage->placed_experts()) all.push_back(experts);
  }
  return all;
}

}  // namespace lyceum
