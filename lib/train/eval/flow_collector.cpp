#include "train/eval/flow_collector.h"

#include <cstddef>

#include "core/copy.h"
#include "core/dtype.h"
#include "core/tensor.h"

namespace lyceum {

namespace {

std::vector<float> floats_in(const Stream& stream, const Tensor& tensor) {
  return dispatch_float(tensor.dtype(), [&]<class T>() {
    const std::vector<T> values = values_of<T>(stream, tensor);
    std::vector<float> floats;
    floats.reserve(values.size());
    for (const T value : values) floats.push_back(static_cast<float>(value));
    return floats;
  });
}

}  // namespace

FlowCollector::FlowCollector(const RunSetup& setup, const Config& config)
    : setup_(setup),
      config_(config),
      observer_([this](const SublayerValues& half) { add(half); }),
      sums_(4 * static_cast<std::size_t>(config.model.layers), ActivationSums(config.model.hidden)) {}

ActivationSums& FlowCollector::sums_of(const MixtureId& id, bool output) {
  return sums_.at(static_cast<std::size_t>(4 * id.layer + (id.site == Site::ffn ? 2 : 0) + (output ? 1 : 0)));
}

void FlowCollector::add(const SublayerValues& half) {
  for (const bool output : {false, true}) {
    const Tensor& own = output ? half.y : half.x;
    const Tensor rows = config_.parallel.sequence ? half.layout.gather_own_tokens(setup_.stream, own) : own;
    if (setup_.mesh.tensor.rank() != 0) continue;  // all tensor ranks have the same rows
    sums_of(half.id, output).add(floats_in(setup_.stream, rows), half.layout.seq_len());
  }
}

std::vector<ActivationFlow::Values> FlowCollector::values(const Evaluation& evaluation) {
  std::vector<ActivationFlow::Values> values;
  for (std::int64_t layer = 0; layer < config_.model.layers; ++layer) {
    for (const Site site : {Site::attention, Site::ffn}) {
      for (const bool output : {false, true}) {
        ActivationSums& sums = sums_of({layer, site}, output);
        setup_.mesh.world.all_reduce(sums.numbers());
        values.push_back(sums.means({layer, site}, output, evaluation.samples, config_.batch.seq_len));
      }
    }
  }
  return values;
}

}  // namespace lyceum
