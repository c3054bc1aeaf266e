#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/check.h"
#include "config/config.h"
#include "core/random.h"
#include "io/data/loader/token_loader.h"
#include "io/data/tokens/megatron_writer.h"
#include "io/data/tokens/token_formats.h"
#include "support/temporary_directory.h"
#include "support/tested_groups.h"
#include "support/tested_world.h"
#include "train/setup/run_setup.h"
#include "train/setup/samples.h"

namespace lyceum {

/// Returns the configuration of a small DeepSeekMoE with awkward sizes: one dense layer, grouped queries, and 9 experts
/// of different widths, which 2, 4 or 8 ranks do not share evenly. It must still be resolved.
inline Config tiny_config() {
  Config config;
  config.batch = {.global = 8, .micro = 0, .seq_len = 12};
  config.model.layers = 3;
  config.model.hidden = 24;
  config.model.heads = 4;
  config.model.kv_heads = 2;
  config.model.head_dim = 6;
  config.model.ffn_hidden = 35;
  config.model.vocab = 61;
  config.model.init_std = 0.2;
  config.model.first_dense_layers = 1;
  config.moe.experts = 9;
  config.moe.shared_experts = 1;
  config.moe.top_k = 3;
  config.moe.expert_hidden = 11;
  config.moe.expert_sizes = {5, 11, 7, 1, 16, 9, 33, 2, 8};
  config.balance = {
      .expert = 0.05, .device = 0.02, .device_groups = 3, .scope = BalanceScope::sequence, .z_loss = 0.01};
  config.optim.lr = 1e-2;
  config.run.timeout_seconds = patience;
  return config;
}

/// A temporary token file of random tokens with some structure. Each rank has its own file, with equal contents. The
/// destructor deletes it.
class TinyData {
 public:
  /// Creates the data for a model of this vocabulary. With data.document_mask, documents have a few tokens each and
  /// there is a mask of trained tokens.
  explicit TinyData(const Config& config)
      : TinyData(config.model.vocab, 2000, config.data.document_mask ? 3 : 97, config.data.document_mask) {}
  explicit TinyData(std::int64_t vocab, std::int64_t tokens = 2000, std::int64_t length = 97, bool mask = false) {
    MegatronWriter writer(prefix(), vocab);
    const Philox random(5, "tiny data");
    std::vector<std::int32_t> document;
    for (std::int64_t i = 0; i < tokens; ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      // Every other token is a function of the one before, so a model can learn something.
      document.push_back(i % 2 ? (document.back() * 7 + 3) % static_cast<std::int32_t>(vocab)
                               : static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocab), at)));
      if (i % length == length - 1) {
        add(writer, document, mask);
        document.clear();
        document.push_back(0);
      }
    }
    add(writer, document, mask);
    writer.finish();
  }
  std::string prefix() const { return (directory_.path() / "tokens").string(); }
  TokenLoader loader(const Config& config) const {
    const auto file = open_tokens(prefix());
    const auto samples = std::make_shared<const TokenSamples>(file, sample_shape(config));
    const SampleOrder order(SampleOrder::Kind::shuffled, 1, 0, samples->count());
    return TokenLoader({{.samples = samples, .order = order}});
  }

 private:
  static void add(MegatronWriter& writer, const std::vector<std::int32_t>& document, bool mask) {
    std::vector<std::uint8_t> trained;
    for (const std::int32_t token : document) trained.push_back(token % 3 != 1);
    mask ? writer.add_document(document, trained) : writer.add_document(document);
  }

  TemporaryDirectory directory_;
};

/// Returns the number of ranks of this program.
inline int world_size() { return test_world().size(); }

/// True if half of the ranks, but at least four, can form a mesh with the same axes: with fewer data ranks of dense
/// layers and of experts, but several of both. Then the test on that many ranks covers this mesh.
inline bool half_has_same_axes(const ParallelConfig& parallel, int world) {
  const auto halves = [&](auto others) { return world % (4 * others) == 0; };
  return world >= 8 && halves(parallel.pipeline * parallel.tensor) &&
         halves(parallel.pipeline * parallel.expert * parallel.expert_tensor);
}

inline std::unique_ptr<RunSetup> make_setup(const ProcessGroup& world, const MeshShape& shape,
                                            const Stream& stream = fresh_stream()) {
  const Transport transport = asynchronous(stream) ? tested_transport() : Transport::mpi;
  return std::make_unique<RunSetup>(
      RunSetup{.stream = stream, .mesh = Mesh::create(world.on(stream, transport, tested_nccl()), shape)});
}

}  // namespace lyceum
