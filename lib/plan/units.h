#pragma once

#include <cstdint>

#include "autograd/parameter.h"
#include "plan/place.h"

namespace lyceum {

/// A ParameterUnit without its parameters.
struct PlannedUnit {
  ParameterUnit::Group group;
  int layer;          // ParameterUnit::layer()
  std::int64_t size;  // elements of flat memory, padding included
  bool twin = false;  // ParameterUnit::twin()
  int decays = 1;     // decayed_runs()
  ParameterUnit::Role role = ParameterUnit::Role::trained;

  bool trained() const { return role == ParameterUnit::Role::trained; }
};

/// This rank's place among those that hold copies of such a unit, see copies_axis().
int copy_index(const Place& place, ParameterUnit::Group group);
/// Bytes of an element of the unit's values.
std::int64_t value_bytes(const Config& config, const PlannedUnit& unit);
/// Elements of this rank's part of the unit, by ZeRO's cut.
std::int64_t owned_elements(const PlannedUnit& unit, const Place& place);

}  // namespace lyceum
