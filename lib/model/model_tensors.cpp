#include "model/model_tensors.h"

#include "model/transformer.h"

namespace lyceum {

std::vector<ModelTensor> model_tensors(const Config& config) {
  Config alone = config;
  alone.parallel = {};
  const Mesh mesh = Mesh::create(ProcessGroup::rehearsal(0, 1), {});
  const Transformer model(alone, RehearsalStream(), mesh, DType::f32, true);
  std::vector<ModelTensor> tensors;
  for (const ParameterUnit* unit : model.units()) {
    for (const auto& parameter : unit->parameters()) {
      for (const ParameterPiece& piece : parameter->pieces) {
        tensors.push_back({piece.name, piece.shape, parameter->init_std});
      }
    }
  }
  return tensors;
}

}  // namespace lyceum
