#include "convert/hugging_face/hosting.h"

#include <boost/algorithm/string/join.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/binding.h"
#include "config/check.h"
#include "convert/hugging_face/modules.h"
#include "core/error.h"
#include "model/ffn/experts.h"
#include "model/model_tensors.h"
#include "model/routing/mixture.h"
#include "model/sublayer_spec.h"

namespace lyceum::hugging_face {

namespace {

bool routes(const Config& config) {
  return choices_of(config.moe) > 0 || config.moe.shared_experts > 0 || !config.moe.experts_of_layers.empty();
}

/// Returns a configuration with only the properties that determine what the model computes at inference; all others
/// have their defaults. So two such configurations differ only if the models do.
Config essence(const Config& resolved) {
  Config config;
  config.model = resolved.model;
  config.moe = resolved.moe;
  config.batch.seq_len = resolved.batch.seq_len;
  config.mtp.depth = resolved.mtp.depth;
  ModelConfig& model = config.model;
  MoeConfig& moe = config.moe;
  model.recompute = {};
  model.loss_chunk = 0;
  model.z_loss = 0;
  model.consistency = 0;
  model.dropout = {};
  simplify_windows(model);
  simplify_activation(model);
  if (model.attention != AttentionKind::latent) model.latent = {};
  if (model.attention == AttentionKind::experts) config.attention_experts = resolved.attention_experts;
  if (resolved.sub_dimensions.attention > 0 || resolved.sub_dimensions.ffn > 0) {
    config.sub_dimensions = resolved.sub_dimensions;
  }
  if (!routes(config) || model.first_dense_layers >= model.layers) {
    moe = {};
    model.first_dense_layers = 0;
  } else if (model.first_dense_layers == 0) {
    model.ffn_hidden = 0;
  }
  moe.top_k_start = 0;
  moe.capacity_factor = 0;
  moe.even_routing = false;
  if (moe.router != RouterKind::mlp) moe.router_hidden = MoeConfig{}.router_hidden;
  if (moe.router == RouterKind::noisy || moe.router == RouterKind::random) moe.router = RouterKind::softmax;
  if (gates_of(moe) == Gates::detached) moe.gates = Gates::renormalized;
  if (moe.group_limit > 0) {
    config.balance.device_groups = resolved.balance.device_groups;
  } else {
    moe.group_score = MoeConfig{}.group_score;
  }
  resolve(config, 1);
  return config;
}

/// Gives all experts the width of the widest one.
void widen_experts(Hosting& hosting) {
  MoeConfig& moe = hosting.config.moe;
  if (moe.expert_sizes.empty()) return;
  const auto [least, most] = std::ranges::minmax(moe.expert_sizes);
  if (least != most) {
    hosting.notes.push_back(
        fmt::format("padded     experts of {} to {} units to {}, with units whose output is 0", least, most, most));
  }
  // Shared experts are one FFN of the sum of their widths; it is rounded up to a multiple of the new width.
  moe.shared_experts = (moe.shared_experts * moe.expert_hidden + most - 1) / most;
  moe.expert_hidden = most;
  moe.expert_sizes = {};
}

/// Returns the model that results from writing `config` as config.json of the architecture and reading it again.
Config round_trip(const Architecture& architecture, const Config& config) {
  Config back = config_of(architecture, json_of(architecture, config));
  if (!routes(back)) back.moe = {};
  if (routes(back) && back.model.first_dense_layers == 0) back.model.ffn_hidden = 0;
  resolve(back, 1);
  return back;
}

}  // namespace

Hosting host(const Architecture& architecture, const Config& resolved) {
  Hosting hosting{.architecture = &architecture, .config = essence(resolved), .notes = {}, .wrong = {}};
  widen_experts(hosting);
  Config& config = hosting.config;
  try {
    Config back = round_trip(architecture, config);
    if (back.mtp.depth == 0 && config.mtp.depth > 0) {
      config.mtp = {};
      hosting.drops_modules = true;
      hosting.notes.push_back(
          fmt::format("left out   modules of multi-token prediction, which {} does not have", architecture.model));
    }
    if (config.moe.shared_experts == 0 && back.moe.shared_experts > 0 && config.moe.experts > 0) {
      config.moe.shared_experts = back.moe.shared_experts;
      hosting.notes.push_back(
          fmt::format("added      shared experts whose output is 0, which {} requires", architecture.model));
      back = round_trip(architecture, config);
    }
    if (!config.moe.shared_gate && back.moe.shared_gate && config.moe.shared_experts > 0) {
      config.moe.shared_gate = true;
      hosting.notes.push_back(fmt::format(
          "added      a gate of the shared experts, always 1/2, with their down_proj doubled: {} requires one",
          architecture.model));
    }
    if (config.model.window >= config.batch.seq_len && back.model.window != config.model.window) {
      config.model.window = 0;
      config.model.window_layers = {};
      hosting.notes.push_back("left out   a window as long as batch.seq_len, which limits no sequence of this length");
      back = round_trip(architecture, config);
    }
    if (!config.model.o_bias && back.model.o_bias && config.model.qkv_bias) {
      config.model.o_bias = true;
      hosting.notes.push_back(fmt::format("added      a bias of 0 on o_proj, which {} requires", architecture.model));
    }
    for (const auto& [key, before, after] : differences(config, back)) {
      hosting.wrong.push_back(fmt::format("{} = {}", key, before));
    }
  } catch (const Error& error) {
    hosting.wrong.push_back(error.what());
    hosting.undescribed = true;
  }
  return hosting;
}

Hosting first_exact_host(const Config& resolved) {
  std::vector<Hosting> all;
  for (const Architecture& architecture : architectures()) {
    if (!architecture.native) continue;
    all.push_back(host(architecture, resolved));
    if (all.back().wrong.empty() && !all.back().drops_modules) return all.back();
  }
  const auto exact = std::ranges::find_if(all, [](const Hosting& each) { return each.wrong.empty(); });
  if (exact != all.end()) return *exact;
  const Hosting& best = *std::ranges::min_element(
      all, {}, [](const Hosting& each) { return std::pair(each.undescribed, each.wrong.size()); });
  fail(ExitCode::usage, "no architecture in transformers can represent this model; {} is the closest, except for {}",
       best.architecture->model, boost::join(best.wrong, ", "));
}

std::vector<Recipe> host_recipes(const Hosting& hosting, const CheckpointReader& source) {
  SpecialParts special;
  for (const ModelTensor& tensor : model_tensors(hosting.config)) {
    const CheckpointReader::Entry* const own = source.find(tensor.name);
    if (!own) {
      special[tensor.name] = {{.scale = 0}};
    } else if (own->shape != tensor.shape) {
      special[tensor.name] = {{.tensor = tensor.name, .padded = tensor.shape}};
    } else if (is_module_projection(tensor.name)) {
      special[tensor.name] = {{.tensor = tensor.name, .pick = exchanged_halves(hosting.config.model.hidden)}};
    }
  }
  // The checkpoint has no gate of the shared experts. The gate that is added is always ½, so down_proj is doubled.
  for (std::int64_t layer = 0; hosting.config.moe.shared_gate && layer < hosting.config.model.layers; ++layer) {
    const SublayerSpec ffn = ffn_spec(hosting.config, layer);
    const auto name = [&](const SublayerTensor& tensor) { return ffn.prefix() + "/" + tensor.name; };
    if (!special.contains(name(shared_gate_tensor(hosting.config.model)))) continue;
    for (const SublayerTensor& tensor : ffn.tensors) {
      if (tensor.part != TensorPart::shared || tensor.cut != Cut::columns || !source.find(name(tensor))) continue;
      special.try_emplace(name(tensor), std::vector{RowSource{.tensor = name(tensor)}}).first->second.front().scale = 2;
    }
  }
  return recipes_of(hosting.config, source, std::move(special));
}

}  // namespace lyceum::hugging_face
