#include "parallel/data/copies.h"

namespace lyceum {

Axis copies_axis(ParameterUnit::Group group) {
  switch (group) {
    case ParameterUnit::Group::dense: return Axis::data;
    case ParameterUnit::Group::replicated: return Axis::data_tensor;
    case ParameterUnit::Group::expert: return Axis::expert_data;
    case ParameterUnit::Group::expert_replicated: return Axis::expert_copies;
  }
  fail(ExitCode::failed, "unknown group of parameters");
}

}  // namespace lyceum
