#include "parallel/data/copies.h"

namespace lyceum {

const ProcessGroup& copies(const Mesh& mesh, ParameterUnit::Group group) {
  switch (group) {
    case ParameterUnit::Group::dense: return mesh.data;
    case ParameterUnit::Group::replicated: return mesh.data_tensor;
    case ParameterUnit::Group::expert: return mesh.expert_data;
  }
  fail(ExitCode::failed, "no such group of parameters");
}

}  // namespace lyceum
