#include "convert/transforms/unit_groups.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "convert/transforms/balanced_clusters.h"
#include "core/copy.h"
#include "core/error.h"
#include "io/checkpoint/unit_tensors.h"
#include "io/data/tokens/data_sources.h"
#include "io/data/tokens/token_formats.h"
#include "kernels/gemm.h"
#include "model/ffn/dense.h"
#include "model/sublayer.h"
#include "model/sublayer_spec.h"
#include "model/transformer.h"
#include "train/setup/run_setup.h"
#include "train/setup/samples.h"

namespace lyceum {

namespace {

/// Returns the prefix of the tensors of a layer's FFN, with a slash at the end.
std::string ffn_of(std::int64_t layer) { return half_prefix(block_prefix(layer), Site::ffn) + "/"; }

}  // namespace

FfnParts group_units_by_weights(const CheckpointReader& checkpoint, const Config& config, std::int64_t layer,
                                std::int64_t experts) {
  std::vector<SublayerTensor> matrices = ffn_spec(config, layer).tensors;
  std::erase_if(matrices, [](const SublayerTensor& tensor) { return tensor.cut != Cut::rows; });
  require(!matrices.empty(), "layer {} has no dense FFN", layer);
  const std::int64_t width = matrices.front().shape[0], hidden = matrices.front().shape[1];
  const std::int64_t cols = hidden * std::ssize(matrices);
  std::vector<float> rows(static_cast<std::size_t>(width * cols)), matrix(static_cast<std::size_t>(width * hidden));
  for (std::size_t m = 0; m < matrices.size(); ++m) {
    checkpoint.read(ffn_of(layer) + matrices[m].name, Box::whole({width, hidden}), matrix.data());
    for (std::int64_t r = 0; r < width; ++r) {
      std::copy_n(matrix.data() + r * hidden, hidden, rows.data() + r * cols + static_cast<std::int64_t>(m) * hidden);
    }
  }
  return balanced_clusters(CpuStream(), {rows.data(), width, cols}, experts);
}

FfnInputs::FfnInputs(const CheckpointReader& checkpoint, const Config& config, const std::string& data,
                     std::int64_t sequences)
    : hidden_(config.model.hidden), layers_(static_cast<std::size_t>(config.model.layers)) {
  Config alone = config;
  alone.parallel = {};
  alone.mtp = {};
  alone.model.recompute = Recompute::none;
  std::vector<std::string> prefixes;
  for (const auto& [prefix, weight] : data_sources("--data", data)) {
    require_usage(weight == 0, "--data = {}: give only prefixes, without weights", data);
    prefixes.push_back(prefix);
  }
  const std::string& digest = checkpoint.tokenizer_sha256();
  require_one_tokenizer(digest.empty() ? "" : checkpoint.tokenizer().string(), digest, prefixes);

  const CpuStream stream;
  const Mesh mesh = Mesh::create(ProcessGroup::self(), {});
  Transformer model(alone, stream, mesh, DType::f32, false);
  load_weights(checkpoint, stream, model.units());
  const SublayerObserver keep = [&](const SublayerValues& half) {
    if (half.id.site != Site::ffn) return;
    const std::vector<float> values = values_of<float>(stream, half.x);
    std::vector<float>& inputs = layers_.at(static_cast<std::size_t>(half.id.layer));
    inputs.insert(inputs.end(), values.begin(), values.end());
  };
  for (const std::string& prefix : prefixes) {
    const auto samples = std::make_shared<const TokenSamples>(open_tokens(prefix), sample_shape(config));
    const std::int64_t all = samples->count(), read = sequences > 0 ? std::min(sequences, all) : all;
    const SampleOrder order(SampleOrder::Kind::sequential, config.run.seed, 0, all);
    const TokenLoader loader = TokenLoader({{.samples = samples, .order = order}}).spread(read);
    for (std::int64_t sample = 0; sample < read; ++sample) {
      Tape tape(stream, Tape::Mode::inference);
      TokenBatch batch = allocate_batch(stream, config, 1, true);
      load(stream, {&loader, sample, 1}, config.model.vocab, batch);
      batch.observer = &keep;
      model.forward(tape, batch);
    }
  }
}

Matrix<const float> FfnInputs::of(std::int64_t layer) const {
  const std::vector<float>& values = layers_.at(static_cast<std::size_t>(layer));
  return {values.data(), std::ssize(values) / hidden_, hidden_};
}

FfnParts group_units_by_coactivation(const CheckpointReader& checkpoint, const FfnInputs& inputs, std::int64_t layer,
                                     std::int64_t experts) {
  const CpuStream stream;
  const Matrix<const float> x = inputs.of(layer);
  const std::string prefix = ffn_of(layer);
  const auto product = [&](const char* name) {  // [width, tokens]
    const CheckpointReader::Entry* const entry = checkpoint.find(prefix + name);
    require_input(entry, "{} has no tensor {}{}", checkpoint.directory().string(), prefix, name);
    std::vector<float> weights(static_cast<std::size_t>(entry->shape.size()));
    checkpoint.read(entry->name, Box::whole(entry->shape), weights.data());
    const std::int64_t width = entry->shape[0];
    std::vector<float> result(static_cast<std::size_t>(width * x.rows));
    const Matrix<const float> matrix{weights.data(), width, x.cols};
    launch(stream, Gemm<float>{.a = matrix, .b = x, .c = {result.data(), width, x.rows}, .transpose_b = true});
    return result;
  };
  std::vector<float> active = product(gate_proj);
  const std::vector<float> up = product(up_proj);
  std::ranges::transform(active, up, active.begin(),
                         [](float gate, float value) { return std::abs(gate / (1 + std::exp(-gate)) * value); });
  return balanced_clusters(stream, {active.data(), std::ssize(active) / x.rows, x.rows}, experts);
}

}  // namespace lyceum
