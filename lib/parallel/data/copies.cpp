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

double sum_over_parts(const Mesh& mesh, ParameterUnit::Group group, double own) {
  std::array<double, 1> sum{own};
  if (group == ParameterUnit::Group::dense) mesh.tensor.all_reduce(std::span(sum));
  if (group == ParameterUnit::Group::expert) {
    mesh.expert.all_reduce(std::span(sum));
    mesh.expert_tensor.all_reduce(std::span(sum));
  }
  return sum[0];
}

}  // namespace lyceum
