#include "plan/units.h"

#include "parallel/data/copies.h"
#include "parallel/data/flat_range.h"

namespace lyceum {

int copy_index(const Place& place, ParameterUnit::Group group) {
  switch (group) {
    case ParameterUnit::Group::dense: return place.index.data;
    case ParameterUnit::Group::replicated: return place.index.data * place.shape.tensor + place.index.tensor;
    default: return place.index.expert_data;
  }
}

std::int64_t value_bytes(const Config& config, const PlannedUnit& unit) {
  return unit.role == ParameterUnit::Role::buffer ? accumulator_bytes : element_bytes(config);
}

std::int64_t owned_elements(const PlannedUnit& unit, const Place& place) {
  return cut_evenly(unit.size, place.size(copies_axis(unit.group)), copy_index(place, unit.group)).count;
}

}  // namespace lyceum
