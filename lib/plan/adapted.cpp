#include "plan/adapted.h"

#include <algorithm>
#include <map>

#include "model/routing/mixture.h"
#include "parallel/data/copies.h"

namespace lyceum {

AdaptedMemory adapted_memory(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> units) {
  struct Bytes {
    double values = 0, gradients = 0;
  };
  std::map<int, Bytes> layers;
  for (const PlannedUnit& unit : units) {
    Bytes& layer = layers[unit.layer];
    if (unit.role != ParameterUnit::Role::adapted) continue;
    const bool gathered = config.parallel.zero >= 3 && mesh_rank.size(copies_axis(unit.group)) > 1;
    if (!gathered) layer.values += number(unit.size * element_bytes(config));
    layer.gradients += number(unit.size * accumulator_bytes);
  }
  // The gradient of a table that the head also uses is kept from the head's backward pass to that of the embedding.
  const bool held = shares_table(config) && mesh_rank.shape.pipeline == 1;
  const double table = held && layers.contains(0) ? layers.at(0).gradients : 0;
  AdaptedMemory memory;
  const int last = layers.empty() ? 0 : layers.rbegin()->first;
  for (const auto& [index, layer] : layers) {
    const double gradients = held && index > 0 ? layer.gradients + table : layer.gradients;
    memory.values = std::max(memory.values, layer.values);
    memory.gradients = std::max(memory.gradients, gradients);
    if (index + 1 < last) continue;
    memory.early_values = std::max(memory.early_values, layer.values);
    memory.early_gradients = std::max(memory.early_gradients, gradients);
  }
  return memory;
}

}  // namespace lyceum
