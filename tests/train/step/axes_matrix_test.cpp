// The equivalence matrix: a run on any mesh gives the results of the serial run. Sixteen ranks are divided into worlds
// of the size of a mesh, so that several meshes train at the same time.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <functional>
#include <iterator>

#include "support/latent_model.h"
#include "support/tested_world.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

using enum ScheduleKind;

constexpr int steps = 5;

/// A model whose sizes no axis divides evenly unless it must: five blocks of which the first is dense, experts of
/// different widths, an odd vocabulary, odd widths and sequence lengths.
Config matrix_config() {
  Config config = tiny_config();
  config.run.layer_metrics_every = 2;
  config.run.replay_every = 4;  // one step is also computed by other ranks, with the same bits
  config.batch = {.global = 16, .micro = 2, .seq_len = 7};
  config.model.layers = 5;
  config.model.hidden = 16;
  config.model.heads = 4;
  config.model.kv_heads = 4;
  config.model.head_dim = 6;
  config.model.ffn_hidden = 19;
  config.model.vocab = 37;
  config.moe.experts = 9;
  config.moe.expert_hidden = 7;
  config.moe.expert_sizes = {5, 8, 7, 4, 11, 9, 17, 6, 8};
  config.model.init_std = 0.1;
  config.optim.clip_norm = 1;
  return config;
}

/// A change of matrix_config(). The serial run of each variant is computed once.
struct Variant {
  std::string name;
  std::function<void(Config&)> change;
};
const std::vector<Variant>& variants() {
  static const std::vector<Variant> all{
      {"base", [](Config&) {}},
      {"tied", [](Config& c) { c.model.tie_embeddings = true; }},
      {"sparse", [](Config& c) { c.model.first_dense_layers = 0; }},
      {"late", [](Config& c) { c.model.first_dense_layers = 4; }},
      {"dense",
       [](Config& c) {
         c.moe = {};
         c.balance = {};
       }},
      {"dropout", [](Config& c) { c.model.dropout = {.rate = 0.2}; }},
      {"dropout of blocks",
       [](Config& c) {
         c.moe = {};
         c.balance = {};
         c.model.tie_embeddings = true;
         c.model.dropout = {.rate = 0.3, .kind = DropoutKind::block, .block = 3};
       }},
      {"concrete dropout",
       [](Config& c) {
         c.moe = {};
         c.balance = {};
         c.model.dropout = {
             .rate = 0.2, .kind = DropoutKind::concrete, .weight_regularizer = 1e-3, .regularizer = 1e-2};
       }},
      {"concrete dropout, mtp",
       [](Config& c) {
         c.moe = {};
         c.balance = {};
         c.mtp = {.depth = 1, .weight = 0.5};
         c.model.dropout = {
             .rate = 0.2, .kind = DropoutKind::concrete, .weight_regularizer = 1e-3, .regularizer = 1e-2};
       }},
      {"gelu",
       [](Config& c) {
         c.model.ffn = Activation::gelu;
         c.run.seed = 5;  // a seed for which no token has two experts whose scores are equal within rounding
       }},
      {"mohd",
       [](Config& c) {
         c.moe = {};
         c.sub_dimensions = {.attention = 4, .ffn = 8, .active = 3, .shared = 1};
         c.balance = {.z_loss = 0.01, .sub_dimension = 0.05};
       }},
      {"mohd, input gates",
       [](Config& c) {
         c.moe = {};
         c.sub_dimensions = {.attention = 4, .ffn = 8, .active = 3, .shared = 1, .input_gates = true};
         c.balance = {.sub_dimension = 0.05};
         c.model.recompute = Recompute::selective;
       }},
      {"mohd, all shared",
       [](Config& c) {
         c.moe = {};
         c.sub_dimensions = {.attention = 4, .ffn = 8, .active = 3, .shared = 3, .input_gates = true};
         c.balance = {};
       }},
      {"mohd, batch",
       [](Config& c) {
         c.moe = {};
         c.sub_dimensions = {.ffn = 8, .active = 6, .scaling = SubDimensionScaling::printed, .fusion_width = 0};
         c.balance = {.expert = 0.05, .scope = BalanceScope::batch, .mutual_information = 0.1, .sub_dimension = 0.05};
         c.model.ffn = Activation::gelu;
         c.optim.router_penalty = 0.1;
       }},
      {"moa",
       [](Config& c) {
         c.model.attention = AttentionKind::experts;
         c.attention_experts = {.count = 5, .top_k = 2, .gates = {}};
         c.balance.mutual_information = 0.1;
         c.optim.router_penalty = 0.1;
         c.optim.router_penalty_from = 7;
         c.optim.router_penalty_from_attention = 2;
       }},
      {"moa alone",  // the FFNs are dense
       [](Config& c) {
         c.model.attention = AttentionKind::experts;
         c.attention_experts = {.count = 3, .top_k = 2, .gates = {}};
         c.moe = {};
         c.moe.router = RouterKind::noisy;
         c.balance = {.expert = 0.05, .scope = BalanceScope::batch};
       }},
      {"moa, sigmoid",
       [](Config& c) {
         c.model.attention = AttentionKind::experts;
         c.attention_experts = {.count = 4, .top_k = 3, .gates = {}};
         c.moe.router = RouterKind::sigmoid;
         c.balance = {.expert = 0.05, .bias_rate = 0.05};
         c.run.steps = steps;
         c.moe.top_k_start = 1;
         c.moe.capacity_factor = 1;
       }},
      {"sigmoid",
       [](Config& c) {
         c.moe.router = RouterKind::sigmoid;
         c.moe.gates = Gates::renormalized;
         c.balance.z_loss = 0;
         c.balance.bias_rate = 0.05;  // large enough to change choices within five steps
         c.moe.group_limit = 2;
       }},
      {"sqrt_softplus",
       [](Config& c) {
         c.moe.router = RouterKind::sqrt_softplus;
         c.moe.gates = Gates::renormalized;
         c.balance.z_loss = 0;
         c.balance.bias_rate = 0.05;
       }},
      {"weightless",
       [](Config& c) {
         c.moe.zero_experts = 3;
         c.moe.copy_experts = 2;
         c.moe.router = RouterKind::sqrt_softplus;
         c.moe.group_limit = 2;
         c.balance = {.expert = 0.05, .device = 0.05, .device_groups = 3, .bias_rate = 0.05};
       }},
      {"weightless and limited",
       [](Config& c) {
         c.run.steps = steps;
         c.moe.zero_experts = 1;
         c.moe.copy_experts = 3;
         c.moe.top_k_start = 1;
         c.moe.capacity_factor = 0.9;
       }},
      {"latent",
       [](Config& c) {
         c.moe.latent_hidden = 6;
         c.moe.shared_experts = 1;
         c.moe.copy_experts = 1;
       }},
      {"normed heads",
       [](Config& c) {
         c.model.qkv_bias = true;
         c.model.qk_norm = QkNormKind::head;
         c.moe.shared_experts = 2;
         c.moe.shared_gate = true;
       }},
      {"normed tokens",
       [](Config& c) {
         c.model.qkv_bias = true;
         c.model.qk_norm = QkNormKind::all;
         c.moe.shared_experts = 1;
         c.moe.shared_gate = true;
         c.model.tie_embeddings = true;
       }},
      {"normed sticks",
       [](Config& c) {
         c.model.attention_weights = AttentionWeights::stick_breaking;
         c.model.qk_norm = QkNormKind::all;
       }},
      {"windows and sinks",
       [](Config& c) {
         c.model.window = 3;
         c.model.window_layers = {1, 0};
         c.model.sinks = true;
         c.model.qkv_bias = true;
       }},
      {"latents", [](Config& c) { make_latent(c.model, 5); }},
      {"latents of documents",
       [](Config& c) {
         make_latent(c.model, 0);
         c.model.positions.scaling = RopeScalingKind::yarn;
         c.model.positions.factor = 4;
         c.model.positions.original_length = 16;
         c.model.positions.mscale_all_dim = 1;
         c.data.document_mask = true;
         c.model.window = 4;
         c.moe.shared_experts = 1;
       }},
      {"windows of documents",
       [](Config& c) {
         c.data.document_mask = true;
         c.model.window = 2;
         c.model.sinks = true;
         c.model.qk_norm = QkNormKind::head;
       }},
      {"moa in windows",
       [](Config& c) {
         c.model.attention = AttentionKind::experts;
         c.attention_experts = {.count = 5, .top_k = 2, .gates = {}};
         c.model.window = 4;
       }},
      {"biases",  // as gpt-oss; the limit clamps some inputs
       [](Config& c) {
         c.model.window = 3;
         c.model.window_layers = {1, 0};
         c.model.sinks = true;
         c.model.qkv_bias = c.model.o_bias = c.model.ffn_bias = true;
         c.model.ffn = Activation::clamped_swiglu;
         c.model.swiglu_limit = 0.3;
         c.run.seed = 5;  // a seed for which no input is within rounding of the limit, where the gradient jumps
         c.moe.router_bias = true;
         c.moe.gates = Gates::renormalized;
       }},
      {"biases of GELU and shared experts",
       [](Config& c) {
         c.model.o_bias = c.model.ffn_bias = true;
         c.model.ffn = Activation::gelu;
         c.model.hidden = 20;
         c.moe.shared_experts = 2;
         c.moe.latent_hidden = 6;
         c.moe.router = RouterKind::sigmoid;
         c.moe.router_bias = true;
         c.moe.capacity_factor = 0.9;
         c.balance = {.expert = 0.05, .bias_rate = 0.05};
       }},
      {"sticks",
       [](Config& c) {
         c.model.attention_weights = AttentionWeights::stick_breaking;
         c.model.kv_heads = 2;
         c.model.head_dim = 5;
       }},
      {"scaled positions",  // four of six columns of a head are rotated, since half of them is an odd number
       [](Config& c) {
         c.model.positions = {.scaling = RopeScalingKind::yarn,
                              .factor = 4,
                              .original_length = 16,
                              .rotary_fraction = 0.5,
                              .layout = RopeLayout::interleaved};
         c.model.qk_norm = QkNormKind::head;
         c.moe.router = RouterKind::sigmoid;
         c.moe.gates = Gates::renormalized;
         c.moe.routed_scale = 2.5;
         c.balance.z_loss = 0;
       }},
      {"scaled positions of experts",
       [](Config& c) {
         c.model.positions = {
             .scaling = RopeScalingKind::llama3, .factor = 8, .original_length = 16, .rotary_fraction = 0.7};
         c.data.document_mask = true;
         c.model.attention = AttentionKind::experts;
         c.attention_experts = {.count = 5, .top_k = 2, .gates = {}};
         c.moe.routed_scale = 0.5;
       }},
      {"documents", [](Config& c) { c.data.document_mask = true; }},
      {"packed documents",
       [](Config& c) {
         c.data.samples = SampleKind::packed;
         c.data.document_mask = true;
         c.model.attention = AttentionKind::experts;
         c.attention_experts = {.count = 5, .top_k = 2, .gates = {}};
       }},
      {"sticks of documents",
       [](Config& c) {
         c.data.document_mask = true;
         c.model.attention_weights = AttentionWeights::stick_breaking;
       }},
      {"random", [](Config& c) { c.moe.router = RouterKind::random; }},
      {"noisy",
       [](Config& c) {
         c.moe.router = RouterKind::noisy;
         c.moe.gates = Gates::renormalized;
         c.moe.group_limit = 1;
       }},
      {"mlp",
       [](Config& c) {
         c.moe.router = RouterKind::mlp;
         c.moe.router_hidden = 10;
         c.moe.gates = Gates::detached;
       }},
      {"information", [](Config& c) { c.balance = {.mutual_information = 0.3, .concentration = 0.1}; }},
      {"batch information",
       [](Config& c) {
         c.moe.router = RouterKind::sigmoid;
         c.balance = {.expert = 0.05, .scope = BalanceScope::batch, .mutual_information = 0.3, .concentration = 0.1};
       }},
      {"global",
       [](Config& c) {
         c.balance.scope = BalanceScope::global;
         c.balance.mutual_information = 0.3;
         c.balance.concentration = 0.1;
       }},
      {"moa, global",
       [](Config& c) {
         c.model.attention = AttentionKind::experts;
         c.attention_experts = {.count = 5, .top_k = 2, .gates = {}};
         c.balance.scope = BalanceScope::global;
       }},
      {"mohd, global",
       [](Config& c) {
         c.moe = {};
         c.sub_dimensions = {.attention = 4, .ffn = 8, .active = 3, .shared = 1};
         c.balance = {.expert = 0.05, .scope = BalanceScope::global, .sub_dimension = 0.05};
       }},
      {"z-loss",
       [](Config& c) {
         c.model.z_loss = 0.05;
         c.data.document_mask = true;
         c.model.loss_chunk = 5;
       }},
      {"z-loss, dense",
       [](Config& c) {
         c.moe = {};
         c.balance = {};
         c.model.z_loss = 0.05;
         c.model.tie_embeddings = true;
       }},
      {"growing",
       [](Config& c) {
         c.run.steps = steps;
         c.moe.top_k_start = 1;
         c.moe.gates = Gates::renormalized;
       }},
      {"limited",
       [](Config& c) {
         c.moe.capacity_factor = 0.8;
         c.moe.gates = Gates::renormalized;
       }},
      {"growing and limited",
       [](Config& c) {
         c.run.steps = steps;
         c.moe.top_k_start = 1;
         c.moe.capacity_factor = 1;
       }},
      {"hash",
       [](Config& c) {
         c.moe.router = RouterKind::hash;
         c.moe.top_k = 1;
         c.balance = {};
       }},
      {"thor",
       [](Config& c) {
         c.moe.router = RouterKind::uniform;
         c.moe.top_k = 2;
         c.balance = {};
         c.model.consistency = 2;
         c.model.z_loss = 0.05;
       }},
      {"uniform",
       [](Config& c) {
         c.moe.router = RouterKind::uniform;
         c.moe.top_k = 3;
         c.balance = {};
       }},
      {"even",  // choices of 9 experts in turn, which no rank's tokens divide evenly
       [](Config& c) {
         c.moe.even_routing = true;
         c.moe.top_k = 2;
         c.mtp = {.depth = 1, .weight = 0.5};
       }},
      {"muon",
       [](Config& c) {
         c.optim.rule = UpdateRuleName::muon;
         c.optim.lr = 3e-3;
         c.model.qkv_bias = true;
         c.optim.adamw_only = {"*/v_proj/weight"};
         c.optim.ema = 0.7;
       }},
      {"clipped heads",  // groups of two heads
       [](Config& c) {
         c.optim.qk_clip = 0.3;
         c.model.kv_heads = 2;
         c.model.qkv_bias = true;
         c.model.sinks = true;
         c.model.window = 5;
         c.model.window_layers = {1, 0};
         c.optim.ema = 0.7;
       }},
      {"mtp, clipped latents",
       [](Config& c) {
         make_latent(c.model, 5);
         c.optim.qk_clip = 0.1;
         c.optim.rule = UpdateRuleName::muon;
         c.optim.lr = 3e-3;
         c.data.document_mask = true;
         c.mtp = {.depth = 1, .weight = 0.3};
       }},
      {"clipped mohd",
       [](Config& c) {
         c.moe = {};
         c.sub_dimensions = {.attention = 4, .ffn = 8, .active = 3, .shared = 1};
         c.balance = {.z_loss = 0.01, .sub_dimension = 0.05};
         c.optim.qk_clip = 0.2;
       }},
      {"mtp", [](Config& c) { c.mtp = {.depth = 2, .weight = 0.5}; }},
      {"mtp, tied and dense",
       [](Config& c) {
         c.mtp = {.depth = 1, .weight = 2};
         c.model.tie_embeddings = true;
         c.moe = {};
         c.balance = {};
       }},
      {"mtp, biased",
       [](Config& c) {
         c.mtp = {.depth = 1, .weight = 0.3};
         c.moe.router = RouterKind::sigmoid;
         c.moe.gates = Gates::renormalized;
         c.moe.shared_experts = 1;
         c.balance = {.expert = 0.05, .bias_rate = 0.05};
         c.data.document_mask = true;
       }},
      {"mtp, packed",  // without a mask, so that tokens attend to other documents, which modules must not predict
       [](Config& c) {
         c.mtp = {.depth = 2, .weight = 1};
         c.data.samples = SampleKind::packed;
         c.moe.expert_sizes.clear();
         c.moe.experts_of_layers = {9, 5, 4, 7};
       }},
      {"mtp, muon",
       [](Config& c) {
         c.mtp = {.depth = 1, .weight = 0.3};
         c.optim.rule = UpdateRuleName::muon;
         c.optim.lr = 3e-3;
         c.model.attention = AttentionKind::experts;
         c.attention_experts = {.count = 5, .top_k = 2, .gates = {}};
       }},
      {"mtp, global, z-loss",
       [](Config& c) {
         c.mtp = {.depth = 2, .weight = 0.5};
         c.balance.scope = BalanceScope::global;
         c.model.z_loss = 0.05;
       }},
      {"layers of their own",
       [](Config& c) {
         c.moe.expert_sizes.clear();
         c.moe.experts_of_layers = {9, 5, 4, 7};
       }},
      {"moa, layers of their own",
       [](Config& c) {
         c.model.attention = AttentionKind::experts;
         c.attention_experts = {.count = 5, .top_k = 2, .count_of_layers = {5, 3, 4, 2, 5}, .gates = {}};
       }},
  };
  return all;
}

struct MeshCase {
  int ranks, pipeline = 1, tensor = 1, expert = 1, expert_tensor = 1, zero = 0;
  ScheduleKind schedule = one_forward_one_backward;
  int virtual_stages = 1;
  bool sequence = false, recompute = false;
  int micro = 2;
  const char* variant = "base";
  int host_ranks = 0;

  std::string text() const {
    const auto part = [](const char* name, int value) { return value > 1 ? " " + (name + std::to_string(value)) : ""; };
    return std::to_string(ranks) + " ranks" + part("pp", pipeline) + part("tp", tensor) + part("ep", expert) +
           part("etp", expert_tensor) + part("hosts of ", host_ranks) + part("vs", virtual_stages) + " zero " +
           std::to_string(zero) + " " + name_of(schedule) + (sequence ? " sequence" : "") +
           (recompute ? " recompute" : "") + " micro " + std::to_string(micro) + " " + variant;
  }
  /// True if only the pipeline differs from the serial run, and no two stages share the embedding table, so that every
  /// bit must be the same. Zero bubble adds the gradients of the regulariser of learnt dropout rates before others.
  bool exact() const {
    const std::string name = variant;
    if (schedule == zero_bubble && name.starts_with("concrete")) return false;
    return ranks == pipeline && micro == 2 && name != "tied" && !name.starts_with("mtp");
  }
};

const std::vector<MeshCase>& cases() {
  static const std::vector<MeshCase> all{
      // one rank: division into micro-batches, recomputation
      {.ranks = 1, .recompute = true},
      {.ranks = 1, .schedule = gpipe},
      {.ranks = 1, .schedule = zero_bubble, .micro = 16},
      {.ranks = 1, .zero = 3, .micro = 1, .variant = "tied"},
      // only the pipeline
      {.ranks = 2, .pipeline = 2},
      {.ranks = 2, .pipeline = 2, .schedule = gpipe, .recompute = true},
      {.ranks = 2, .pipeline = 2, .schedule = zero_bubble, .variant = "late"},
      {.ranks = 2, .pipeline = 2, .schedule = interleaved, .virtual_stages = 2},
      {.ranks = 2, .pipeline = 2, .variant = "dense"},
      {.ranks = 4, .pipeline = 4, .schedule = zero_bubble, .recompute = true},
      {.ranks = 4, .pipeline = 4, .variant = "late"},
      {.ranks = 4, .pipeline = 4, .schedule = gpipe, .variant = "sparse"},
      {.ranks = 4, .pipeline = 4, .micro = 4, .variant = "tied"},
      // one other axis
      {.ranks = 2, .zero = 0},
      {.ranks = 2, .zero = 1, .micro = 8},
      {.ranks = 2, .zero = 2},
      {.ranks = 2, .zero = 3, .recompute = true},
      {.ranks = 2, .tensor = 2},
      {.ranks = 2, .tensor = 2, .sequence = true, .variant = "tied"},
      {.ranks = 2, .expert = 2},
      {.ranks = 2, .expert_tensor = 2},
      {.ranks = 4, .tensor = 4, .sequence = true, .micro = 1},
      {.ranks = 4, .zero = 3, .variant = "tied"},
      {.ranks = 4, .expert = 4, .zero = 2, .micro = 4},
      // pairs of axes
      {.ranks = 4, .pipeline = 2, .zero = 1},
      {.ranks = 4, .pipeline = 2, .zero = 2, .schedule = zero_bubble, .micro = 1},
      {.ranks = 4, .pipeline = 2, .zero = 3, .schedule = interleaved, .virtual_stages = 2},
      {.ranks = 4, .pipeline = 2, .tensor = 2},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .schedule = zero_bubble, .sequence = true, .recompute = true},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .sequence = true, .variant = "tied"},
      {.ranks = 4, .pipeline = 2, .expert = 2, .schedule = gpipe},
      {.ranks = 4, .pipeline = 2, .expert_tensor = 2, .zero = 3, .variant = "late"},
      {.ranks = 4, .tensor = 2, .expert = 2, .expert_tensor = 2, .sequence = true},
      {.ranks = 4, .tensor = 2, .expert = 4, .zero = 3, .micro = 4},
      {.ranks = 4, .tensor = 2, .zero = 2, .sequence = true, .variant = "dense"},
      // three and more axes
      {.ranks = 8, .pipeline = 2, .tensor = 2, .expert = 2},
      {.ranks = 8, .pipeline = 2, .tensor = 2, .expert = 2, .zero = 3, .schedule = zero_bubble, .sequence = true},
      {.ranks = 8, .pipeline = 2, .tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 1, .recompute = true},
      {.ranks = 8, .pipeline = 4, .zero = 3, .micro = 1, .variant = "tied"},
      {.ranks = 8, .pipeline = 4, .tensor = 2, .schedule = zero_bubble, .sequence = true},
      {.ranks = 8, .pipeline = 2, .expert = 4, .zero = 2, .schedule = gpipe, .variant = "sparse"},
      {.ranks = 8, .tensor = 4, .expert = 8, .sequence = true},
      {.ranks = 8, .tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 3, .sequence = true},
      {.ranks = 8, .expert = 4, .zero = 1},
      {.ranks = 8, .pipeline = 2, .tensor = 4, .schedule = interleaved, .virtual_stages = 2, .sequence = true},
      // sub-dimensions
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "mohd"},
      {.ranks = 4, .tensor = 2, .zero = 3, .micro = 1, .variant = "mohd, batch"},
      {.ranks = 8, .pipeline = 2, .tensor = 2, .zero = 2, .schedule = zero_bubble, .sequence = true, .variant = "mohd"},
      {.ranks = 8, .tensor = 4, .zero = 1, .sequence = true, .recompute = true, .micro = 1, .variant = "mohd, batch"},
      // other routers
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "sigmoid"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .zero = 3, .sequence = true, .variant = "sigmoid"},
      {.ranks = 4, .pipeline = 2, .zero = 3, .schedule = interleaved, .virtual_stages = 2, .variant = "random"},
      {.ranks = 8, .tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 2, .micro = 4, .variant = "sigmoid"},
      {.ranks = 8, .tensor = 2, .expert = 4, .zero = 1, .sequence = true, .recompute = true, .variant = "random"},
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "sqrt_softplus"},
      {.ranks = 8, .pipeline = 2, .tensor = 2, .expert = 2, .zero = 3, .sequence = true, .variant = "sqrt_softplus"},
      // experts without weights, experts with a hidden width other than the model's
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "weightless"},
      {.ranks = 4, .tensor = 2, .expert = 2, .expert_tensor = 2, .sequence = true, .variant = "weightless"},
      {.ranks = 8,
       .pipeline = 2,
       .tensor = 2,
       .expert = 4,
       .zero = 3,
       .schedule = zero_bubble,
       .variant = "weightless"},
      {.ranks = 1, .zero = 3, .recompute = true, .micro = 1, .variant = "weightless and limited"},
      {.ranks = 4, .tensor = 2, .expert = 2, .zero = 1, .sequence = true, .variant = "weightless and limited"},
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "latent"},
      {.ranks = 4, .tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 1, .sequence = true, .variant = "latent"},
      {.ranks = 8, .pipeline = 2, .tensor = 2, .expert = 4, .zero = 3, .schedule = zero_bubble, .variant = "latent"},
      {.ranks = 2, .pipeline = 2, .variant = "hash"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .zero = 1, .variant = "noisy"},
      {.ranks = 8,
       .pipeline = 2,
       .tensor = 2,
       .expert = 2,
       .zero = 3,
       .schedule = zero_bubble,
       .sequence = true,
       .recompute = true,
       .variant = "noisy"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .zero = 3, .sequence = true, .recompute = true, .variant = "mlp"},
      {.ranks = 4, .tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 1, .micro = 4, .variant = "mlp"},
      {.ranks = 8, .pipeline = 4, .tensor = 2, .expert = 2, .sequence = true, .recompute = true, .variant = "hash"},
      {.ranks = 8, .tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 3, .micro = 4, .variant = "hash"},
      {.ranks = 1, .zero = 3, .recompute = true, .micro = 1, .variant = "uniform"},
      {.ranks = 1, .zero = 2, .recompute = true, .micro = 16, .variant = "thor"},
      {.ranks = 2, .tensor = 2, .sequence = true, .micro = 4, .variant = "thor"},
      {.ranks = 2, .pipeline = 2, .schedule = gpipe, .variant = "thor"},
      {.ranks = 4, .expert = 4, .zero = 3, .variant = "thor"},
      {.ranks = 8,
       .pipeline = 2,
       .tensor = 2,
       .expert = 2,
       .expert_tensor = 2,
       .zero = 1,
       .schedule = zero_bubble,
       .sequence = true,
       .recompute = true,
       .variant = "thor"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .sequence = true, .recompute = true, .variant = "uniform"},
      {.ranks = 4, .tensor = 2, .expert = 2, .sequence = true, .recompute = true, .micro = 1, .variant = "even"},
      {.ranks = 8, .tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 3, .micro = 4, .variant = "uniform"},
      // other attention
      {.ranks = 1, .zero = 3, .recompute = true, .micro = 1, .variant = "sticks"},
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "sticks"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .zero = 3, .sequence = true, .recompute = true, .variant = "sticks"},
      {.ranks = 8, .tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 2, .micro = 4, .variant = "sticks"},
      // biases and norms of projections, a gate on the shared experts
      {.ranks = 1, .zero = 3, .recompute = true, .micro = 1, .variant = "normed heads"},
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "normed heads"},
      {.ranks = 2, .tensor = 2, .variant = "normed heads"},
      {.ranks = 2, .tensor = 2, .variant = "normed tokens"},
      {.ranks = 2, .zero = 2, .variant = "normed tokens"},
      {.ranks = 4, .tensor = 4, .sequence = true, .micro = 1, .variant = "normed heads"},
      {.ranks = 4, .tensor = 2, .zero = 1, .sequence = true, .variant = "normed sticks"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .zero = 3, .recompute = true, .variant = "normed tokens"},
      {.ranks = 8, .tensor = 2, .expert = 4, .expert_tensor = 2, .zero = 2, .micro = 4, .variant = "normed heads"},
      {.ranks = 8,
       .pipeline = 2,
       .tensor = 4,
       .expert = 2,
       .zero = 3,
       .schedule = zero_bubble,
       .sequence = true,
       .variant = "normed tokens"},
      // windows and sinks
      {.ranks = 1, .zero = 3, .schedule = zero_bubble, .recompute = true, .micro = 1, .variant = "windows and sinks"},
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "windows and sinks"},
      {.ranks = 2, .tensor = 2, .variant = "windows and sinks"},
      {.ranks = 2, .tensor = 2, .sequence = true, .variant = "moa in windows"},
      {.ranks = 4, .tensor = 4, .sequence = true, .micro = 1, .variant = "windows of documents"},
      {.ranks = 4, .pipeline = 2, .zero = 2, .schedule = zero_bubble, .variant = "windows of documents"},
      {.ranks = 4, .pipeline = 4, .schedule = zero_bubble, .variant = "windows and sinks"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .zero = 3, .recompute = true, .variant = "windows of documents"},
      {.ranks = 8, .tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 2, .micro = 4, .variant = "windows and sinks"},
      {.ranks = 8,
       .pipeline = 2,
       .tensor = 2,
       .expert = 4,
       .zero = 3,
       .schedule = zero_bubble,
       .sequence = true,
       .variant = "windows and sinks"},
      // latent attention
      {.ranks = 1, .zero = 3, .schedule = zero_bubble, .recompute = true, .micro = 1, .variant = "latents"},
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "latents"},
      {.ranks = 2, .tensor = 2, .variant = "latents"},
      {.ranks = 2, .tensor = 2, .sequence = true, .variant = "latents of documents"},
      {.ranks = 2, .zero = 2, .variant = "latents of documents"},
      {.ranks = 4, .tensor = 4, .sequence = true, .micro = 1, .variant = "latents"},
      {.ranks = 4, .tensor = 4, .recompute = true, .variant = "latents of documents"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .zero = 3, .recompute = true, .variant = "latents of documents"},
      {.ranks = 8, .tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 2, .micro = 4, .variant = "latents"},
      {.ranks = 8,
       .pipeline = 2,
       .tensor = 2,
       .expert = 4,
       .zero = 3,
       .schedule = zero_bubble,
       .sequence = true,
       .variant = "latents"},
      // biases of all projections, clamped activations
      {.ranks = 1, .zero = 3, .schedule = zero_bubble, .recompute = true, .micro = 1, .variant = "biases"},
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "biases"},
      {.ranks = 2, .tensor = 2, .variant = "biases"},
      {.ranks = 2, .expert_tensor = 2, .zero = 1, .variant = "biases"},
      {.ranks = 4, .tensor = 4, .sequence = true, .micro = 1, .variant = "biases"},
      {.ranks = 4, .tensor = 2, .expert = 2, .expert_tensor = 2, .sequence = true, .variant = "biases"},
      {.ranks = 4, .tensor = 2, .expert_tensor = 4, .variant = "biases of GELU and shared experts"},
      {.ranks = 4, .pipeline = 4, .schedule = zero_bubble, .variant = "biases of GELU and shared experts"},
      {.ranks = 8,
       .tensor = 2,
       .expert = 2,
       .expert_tensor = 2,
       .zero = 2,
       .micro = 4,
       .variant = "biases of GELU and shared experts"},
      {.ranks = 8,
       .pipeline = 2,
       .tensor = 2,
       .expert = 4,
       .zero = 3,
       .schedule = zero_bubble,
       .sequence = true,
       .recompute = true,
       .variant = "biases"},
      // attention within documents, targets that do not count
      {.ranks = 1, .zero = 3, .recompute = true, .micro = 1, .variant = "documents"},
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "documents"},
      {.ranks = 4, .tensor = 4, .sequence = true, .variant = "documents"},
      {.ranks = 4, .pipeline = 4, .schedule = zero_bubble, .variant = "sticks of documents"},
      {.ranks = 4, .tensor = 2, .expert = 2, .zero = 3, .micro = 1, .variant = "sticks of documents"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .zero = 3, .sequence = true, .variant = "packed documents"},
      {.ranks = 8, .pipeline = 2, .tensor = 2, .zero = 2, .sequence = true, .micro = 1, .variant = "documents"},
      // scaled and partial rotary positions
      {.ranks = 1, .zero = 3, .recompute = true, .micro = 1, .variant = "scaled positions"},
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "scaled positions"},
      {.ranks = 2, .tensor = 2, .variant = "scaled positions"},
      {.ranks = 4, .tensor = 4, .zero = 1, .sequence = true, .variant = "scaled positions"},
      {.ranks = 4, .tensor = 2, .expert = 2, .expert_tensor = 2, .sequence = true, .variant = "scaled positions"},
      {.ranks = 8, .pipeline = 2, .tensor = 2, .expert = 2, .zero = 3, .sequence = true, .variant = "scaled positions"},
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "scaled positions of experts"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .zero = 3, .sequence = true, .variant = "scaled positions of experts"},
      {.ranks = 8, .tensor = 2, .expert = 4, .zero = 2, .micro = 4, .variant = "scaled positions of experts"},
      // losses based on entropies
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "information"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .zero = 3, .sequence = true, .variant = "batch information"},
      {.ranks = 8, .tensor = 2, .expert = 4, .zero = 2, .micro = 4, .variant = "information"},
      // attention experts
      {.ranks = 1, .recompute = true, .micro = 1, .variant = "moa"},
      {.ranks = 1, .zero = 3, .schedule = zero_bubble, .variant = "moa alone"},
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "moa"},
      {.ranks = 2, .tensor = 2, .variant = "moa"},
      {.ranks = 2, .expert = 2, .zero = 3, .variant = "moa"},
      {.ranks = 2, .zero = 1, .micro = 1, .variant = "moa alone"},
      {.ranks = 4, .tensor = 4, .sequence = true, .variant = "moa"},
      {.ranks = 4, .pipeline = 2, .zero = 3, .schedule = zero_bubble, .variant = "moa"},
      {.ranks = 4, .tensor = 2, .expert = 2, .zero = 2, .micro = 4, .variant = "moa, sigmoid"},
      {.ranks = 8,
       .pipeline = 2,
       .tensor = 2,
       .expert = 2,
       .zero = 3,
       .schedule = zero_bubble,
       .sequence = true,
       .recompute = true,
       .variant = "moa, sigmoid"},
      {.ranks = 8, .tensor = 2, .expert = 4, .expert_tensor = 2, .zero = 1, .sequence = true, .variant = "moa"},
      {.ranks = 8, .pipeline = 2, .tensor = 2, .zero = 3, .sequence = true, .micro = 1, .variant = "moa alone"},
      // another activation
      {.ranks = 1, .zero = 3, .recompute = true, .micro = 1, .variant = "gelu"},
      {.ranks = 2, .pipeline = 2, .variant = "gelu"},
      {.ranks = 8, .tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 2, .sequence = true, .variant = "gelu"},
      // another update rule
      {.ranks = 1, .zero = 3, .recompute = true, .micro = 1, .variant = "muon"},
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "muon"},
      {.ranks = 4, .zero = 0, .variant = "muon"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .zero = 3, .sequence = true, .variant = "muon"},
      {.ranks = 8, .tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 0, .sequence = true, .variant = "muon"},
      {.ranks = 8, .tensor = 2, .expert = 4, .zero = 2, .micro = 4, .variant = "muon"},
      {.ranks = 16,
       .pipeline = 2,
       .tensor = 2,
       .expert = 2,
       .expert_tensor = 2,
       .zero = 1,
       .schedule = zero_bubble,
       .sequence = true,
       .micro = 1,
       .variant = "muon"},
      // losses over the step so far: passes have as many sequences as those of the serial run
      {.ranks = 1, .recompute = true, .variant = "global"},
      {.ranks = 1, .schedule = gpipe, .recompute = true, .variant = "mohd, global"},
      {.ranks = 2, .pipeline = 2, .variant = "global"},
      {.ranks = 2, .pipeline = 2, .schedule = gpipe, .recompute = true, .variant = "global"},
      {.ranks = 2, .pipeline = 2, .schedule = interleaved, .virtual_stages = 2, .recompute = true, .variant = "global"},
      {.ranks = 4, .pipeline = 4, .schedule = zero_bubble, .recompute = true, .variant = "moa, global"},
      {.ranks = 2, .zero = 3, .micro = 1, .variant = "global"},
      {.ranks = 4, .tensor = 2, .expert = 4, .zero = 1, .sequence = true, .micro = 1, .variant = "global"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .zero = 2, .recompute = true, .variant = "mohd, global"},
      {.ranks = 8,
       .pipeline = 2,
       .tensor = 2,
       .expert = 2,
       .zero = 3,
       .schedule = zero_bubble,
       .sequence = true,
       .recompute = true,
       .micro = 1,
       .variant = "global"},
      {.ranks = 1, .recompute = true, .variant = "mtp, global, z-loss"},
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "mtp, global, z-loss"},
      {.ranks = 4, .tensor = 2, .zero = 3, .sequence = true, .micro = 1, .variant = "mtp, global, z-loss"},
      // QK-clip
      {.ranks = 1, .zero = 3, .recompute = true, .micro = 1, .variant = "clipped heads"},
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "clipped heads"},
      {.ranks = 2, .tensor = 2, .sequence = true, .variant = "clipped heads"},
      {.ranks = 2, .zero = 1, .variant = "clipped heads"},
      {.ranks = 4, .zero = 2, .micro = 1, .variant = "clipped heads"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .recompute = true, .variant = "clipped mohd"},
      {.ranks = 4, .tensor = 4, .sequence = true, .variant = "mtp, clipped latents"},
      {.ranks = 4, .pipeline = 4, .schedule = zero_bubble, .variant = "mtp, clipped latents"},
      {.ranks = 8, .pipeline = 2, .tensor = 2, .zero = 3, .recompute = true, .variant = "clipped heads"},
      {.ranks = 8,
       .tensor = 2,
       .expert = 4,
       .zero = 1,
       .sequence = true,
       .micro = 1,
       .variant = "mtp, clipped latents"},
      {.ranks = 8, .pipeline = 2, .expert = 2, .zero = 2, .micro = 1, .variant = "mtp, clipped latents"},
      // the z-loss of the head
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "z-loss"},
      {.ranks = 2, .tensor = 2, .variant = "z-loss, dense"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .zero = 1, .sequence = true, .variant = "z-loss"},
      {.ranks = 4, .zero = 3, .micro = 1, .variant = "z-loss"},
      {.ranks = 8, .pipeline = 2, .tensor = 2, .zero = 2, .schedule = zero_bubble, .variant = "z-loss, dense"},
      // layers with different numbers of experts
      {.ranks = 4, .expert = 4, .zero = 1, .variant = "layers of their own"},
      {.ranks = 8, .pipeline = 2, .tensor = 2, .expert = 2, .zero = 3, .variant = "layers of their own"},
      // a number of experts per token that grows
      {.ranks = 2, .pipeline = 2, .schedule = gpipe, .recompute = true, .variant = "growing"},
      {.ranks = 4, .tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 1, .sequence = true, .variant = "growing"},
      {.ranks = 8, .pipeline = 2, .expert = 4, .zero = 3, .schedule = zero_bubble, .variant = "growing"},
      // experts with limited capacity
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "limited"},
      {.ranks = 1, .zero = 3, .recompute = true, .micro = 1, .variant = "growing and limited"},
      {.ranks = 2, .tensor = 2, .variant = "limited"},
      {.ranks = 2, .expert_tensor = 2, .micro = 4, .variant = "growing and limited"},
      {.ranks = 4, .expert = 4, .zero = 1, .variant = "limited"},
      {.ranks = 4, .pipeline = 4, .schedule = zero_bubble, .variant = "growing and limited"},
      {.ranks = 4, .tensor = 4, .sequence = true, .micro = 1, .variant = "limited"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .expert = 2, .zero = 3, .variant = "growing and limited"},
      {.ranks = 8, .tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 2, .micro = 4, .variant = "limited"},
      // dropout, whose masks depend on no axis
      {.ranks = 1, .zero = 3, .recompute = true, .micro = 1, .variant = "dropout"},
      {.ranks = 2, .pipeline = 2, .schedule = gpipe, .recompute = true, .variant = "dropout"},
      {.ranks = 2, .tensor = 2, .variant = "dropout"},
      {.ranks = 2, .tensor = 2, .sequence = true, .variant = "dropout of blocks"},
      {.ranks = 2, .zero = 2, .micro = 4, .variant = "dropout of blocks"},
      {.ranks = 4, .tensor = 4, .sequence = true, .micro = 1, .variant = "dropout"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .recompute = true, .variant = "dropout of blocks"},
      {.ranks = 8, .pipeline = 2, .tensor = 2, .expert = 2, .zero = 3, .sequence = true, .variant = "dropout"},
      {.ranks = 8,
       .pipeline = 2,
       .tensor = 2,
       .zero = 1,
       .schedule = zero_bubble,
       .sequence = true,
       .micro = 1,
       .variant = "dropout of blocks"},
      {.ranks = 1, .zero = 3, .recompute = true, .micro = 4, .variant = "concrete dropout"},
      {.ranks = 2, .tensor = 2, .variant = "concrete dropout"},
      {.ranks = 2, .pipeline = 2, .recompute = true, .variant = "concrete dropout"},
      {.ranks = 4, .tensor = 2, .zero = 2, .sequence = true, .micro = 1, .variant = "concrete dropout"},
      {.ranks = 2, .zero = 3, .recompute = true, .variant = "concrete dropout, mtp"},
      {.ranks = 4, .pipeline = 4, .schedule = zero_bubble, .variant = "concrete dropout"},
      {.ranks = 4, .pipeline = 2, .zero = 3, .schedule = zero_bubble, .variant = "concrete dropout"},
      {.ranks = 4, .pipeline = 2, .zero = 3, .schedule = zero_bubble, .variant = "concrete dropout, mtp"},
      {.ranks = 8, .pipeline = 2, .tensor = 2, .zero = 3, .micro = 1, .variant = "concrete dropout"},
      {.ranks = 8, .tensor = 4, .zero = 1, .sequence = true, .recompute = true, .variant = "concrete dropout"},
      // modules of multi-token prediction
      {.ranks = 1, .zero = 3, .recompute = true, .micro = 4, .variant = "mtp"},
      {.ranks = 2, .pipeline = 2, .variant = "mtp"},
      {.ranks = 2, .zero = 3, .recompute = true, .variant = "mtp, biased"},
      {.ranks = 2, .zero = 3, .micro = 1, .variant = "mtp, tied and dense"},
      {.ranks = 2, .tensor = 2, .sequence = true, .variant = "mtp"},
      {.ranks = 2, .tensor = 2, .variant = "mtp, packed"},
      {.ranks = 2, .pipeline = 2, .schedule = zero_bubble, .variant = "mtp, packed"},
      {.ranks = 4, .tensor = 4, .micro = 1, .variant = "mtp, biased"},
      {.ranks = 4, .pipeline = 4, .schedule = zero_bubble, .recompute = true, .variant = "mtp"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .zero = 2, .sequence = true, .variant = "mtp, tied and dense"},
      {.ranks = 4, .pipeline = 2, .zero = 3, .schedule = interleaved, .virtual_stages = 2, .variant = "mtp, biased"},
      {.ranks = 4, .pipeline = 2, .tensor = 2, .zero = 3, .micro = 1, .variant = "mtp, muon"},
      {.ranks = 4, .tensor = 2, .expert = 4, .zero = 2, .sequence = true, .variant = "mtp"},
      {.ranks = 8,
       .pipeline = 2,
       .tensor = 2,
       .expert = 2,
       .expert_tensor = 2,
       .zero = 1,
       .recompute = true,
       .variant = "mtp"},
      {.ranks = 8, .pipeline = 2, .expert = 4, .zero = 3, .schedule = gpipe, .variant = "mtp, packed"},
      {.ranks = 8, .tensor = 2, .expert = 2, .expert_tensor = 2, .zero = 3, .sequence = true, .variant = "mtp, biased"},
      // sixteen ranks: all axes together
      {.ranks = 16, .zero = 3, .micro = 1},
      {.ranks = 16,
       .pipeline = 2,
       .tensor = 2,
       .expert = 2,
       .expert_tensor = 2,
       .zero = 3,
       .schedule = interleaved,
       .virtual_stages = 2,
       .sequence = true,
       .recompute = true,
       .micro = 1},
      {.ranks = 16,
       .pipeline = 4,
       .tensor = 2,
       .expert = 2,
       .zero = 2,
       .schedule = zero_bubble,
       .micro = 1,
       .variant = "tied"},
      {.ranks = 16,
       .pipeline = 2,
       .tensor = 2,
       .expert = 4,
       .expert_tensor = 2,
       .zero = 3,
       .sequence = true,
       .recompute = true,
       .variant = "latent"},
      {.ranks = 16,
       .pipeline = 2,
       .tensor = 4,
       .expert = 4,
       .expert_tensor = 2,
       .zero = 1,
       .sequence = true,
       .variant = "late"},
      // two-step dispatch: tokens are sent to each host once and forwarded there
      {.ranks = 4, .expert = 4, .variant = "sparse", .host_ranks = 2},
      {.ranks = 8, .expert = 8, .zero = 1, .variant = "weightless and limited", .host_ranks = 4},
      {.ranks = 8, .tensor = 2, .expert = 4, .expert_tensor = 2, .sequence = true, .recompute = true, .host_ranks = 4},
      {.ranks = 16,
       .pipeline = 2,
       .tensor = 2,
       .expert = 8,
       .zero = 3,
       .schedule = zero_bubble,
       .sequence = true,
       .micro = 1,
       .variant = "latent",
       .host_ranks = 2},
  };
  return all;
}

Config config_of(const MeshCase& mesh) {
  Config config = matrix_config();
  for (const Variant& variant : variants()) {
    if (variant.name == mesh.variant) variant.change(config);
  }
  config.batch.micro = mesh.micro;
  config.model.recompute = mesh.recompute ? Recompute::full : Recompute::none;
  config.parallel = {.pipeline = mesh.pipeline,
                     .tensor = mesh.tensor,
                     .expert = mesh.expert,
                     .expert_tensor = mesh.expert_tensor,
                     .zero = mesh.zero,
                     .schedule = mesh.schedule,
                     .virtual_stages = mesh.virtual_stages,
                     .sequence = mesh.sequence,
                     .host_ranks = mesh.host_ranks};
  return config;
}

/// Returns the serial run of a variant in the form that serial_runs() broadcasts.
nlohmann::json serial_run(const Variant& variant) {
  nlohmann::json results = nlohmann::json::array();
  Config config = matrix_config();
  variant.change(config);
  for (const StepResult& step : TinyTraining(config, ProcessGroup::self()).run(0, steps)) {
    nlohmann::json counts = nlohmann::json::array();
    for (const RoutingSums& layer : step.routing) {
      counts.push_back({layer.id.layer, layer.id.site == Site::attention, layer.counts, layer.dropped});
    }
    nlohmann::json losses = nlohmann::json::array();
    for (const auto& [kind, value] : step.losses) losses.push_back({static_cast<int>(kind), value});
    nlohmann::json layers = nlohmann::json::array();
    if (step.layers) {
      layers = {step.layers->weight_norms, step.layers->gradient_norms, step.layers->activation_norms,
                step.layers->largest_logit, step.layers->attention_logits};
    }
    results.push_back({step.loss, step.grad_norm, losses, counts, layers});
  }
  return results;
}

/// Collective. Returns the serial runs by variant. The ranks share the variants, and broadcast the results.
std::map<std::string, std::vector<StepResult>> serial_runs(const ProcessGroup& world) {
  const auto owner = [&](std::size_t variant) { return static_cast<int>(variant) % world.size(); };
  std::vector<std::string> texts(variants().size());
  for (std::size_t v = 0; v < texts.size(); ++v) {
    if (owner(v) == world.rank()) texts[v] = serial_run(variants()[v]).dump();
  }
  std::map<std::string, std::vector<StepResult>> all;
  for (std::size_t v = 0; v < texts.size(); ++v) {
    for (const nlohmann::json& step : nlohmann::json::parse(world.broadcast(texts[v], owner(v)))) {
      StepResult result;
      result.loss = step[0];
      result.grad_norm = step[1];
      for (const nlohmann::json& loss : step[2]) {
        result.losses.push_back({static_cast<LossKind>(loss[0].get<int>()), loss[1].get<double>()});
      }
      for (const nlohmann::json& layer : step[3]) {
        RoutingSums& sums = result.routing.emplace_back();
        sums.id = {layer[0], layer[1].get<bool>() ? Site::attention : Site::ffn};
        sums.counts = layer[2].get<std::vector<std::int64_t>>();
        sums.dropped = layer[3].get<std::vector<std::int64_t>>();
      }
      if (const nlohmann::json& layers = step[4]; !layers.empty()) {
        result.layers = {.weight_norms = layers[0],
                         .gradient_norms = layers[1],
                         .activation_norms = layers[2],
                         .largest_logit = layers[3],
                         .attention_logits = layers[4]};
      }
      all[variants()[v].name].push_back(std::move(result));
    }
  }
  return all;
}

void expect_equal(const std::vector<StepResult>& run, const std::vector<StepResult>& serial, const MeshCase& mesh) {
  ASSERT_EQ(run.size(), serial.size());
  for (std::size_t s = 0; s < serial.size(); ++s) {
    const StepResult &a = run[s], &b = serial[s];
    const std::string where = mesh.text() + ", step " + std::to_string(s);
    const auto expect_near = [&](double value, double expected, double tolerance, const char* what) {
      const double allowed = mesh.exact() ? 0 : tolerance * std::abs(expected);
      EXPECT_TRUE(std::abs(value - expected) <= allowed)
          << where << ", " << what << ": " << value << " for " << expected;
    };
    expect_near(a.loss, b.loss, 1e-5, "loss");
    expect_near(a.grad_norm, b.grad_norm, 1e-4, "gradient norm");
    ASSERT_EQ(a.losses.size(), b.losses.size()) << where;
    for (std::size_t l = 0; l < b.losses.size(); ++l) {
      EXPECT_EQ(a.losses[l].kind, b.losses[l].kind) << where;
      expect_near(a.losses[l].value, b.losses[l].value, 1e-4, name_of(b.losses[l].kind).c_str());
    }
    ASSERT_EQ(a.layers.has_value(), b.layers.has_value()) << where;
    if (b.layers) {
      const auto expect_all_near = [&](const std::vector<double>& values, const std::vector<double>& expected,
                                       const char* what) {
        ASSERT_EQ(values.size(), expected.size()) << where << ", " << what;
        for (std::size_t i = 0; i < expected.size(); ++i) expect_near(values[i], expected[i], 1e-4, what);
      };
      expect_all_near(a.layers->weight_norms, b.layers->weight_norms, "weight norm of a layer");
      expect_all_near(a.layers->gradient_norms, b.layers->gradient_norms, "gradient norm of a layer");
      expect_all_near(a.layers->activation_norms, b.layers->activation_norms, "activation norm of a block");
      expect_near(a.layers->largest_logit, b.layers->largest_logit, 1e-4, "largest logit");
      expect_all_near(a.layers->attention_logits, b.layers->attention_logits, "attention logit of a block");
    }
    ASSERT_EQ(a.routing.size(), b.routing.size()) << where;
    for (std::size_t layer = 0; layer < b.routing.size(); ++layer) {
      EXPECT_EQ(a.routing[layer].id, b.routing[layer].id) << where;
      EXPECT_EQ(a.routing[layer].counts, b.routing[layer].counts)
          << where << ", layer " << label_of(b.routing[layer].id);
      EXPECT_EQ(a.routing[layer].dropped, b.routing[layer].dropped)
          << where << ", layer " << label_of(b.routing[layer].id);
    }
  }
}

void expect_schedule(const TinyTraining& training, const StepResult& step) {
  const Mesh& mesh = training.setup().mesh;
  const Schedule schedule = training_schedule(training.config(), mesh);
  Program done;
  for (const TimedAction& timed : step.trace) done.push_back(timed.action);
  EXPECT_EQ(done, schedule.programs[static_cast<std::size_t>(mesh.pipeline.rank())]);
}

TEST(AxesMatrix, HasFortyMeshesAndEveryKindOfThem) {
  EXPECT_GE(cases().size(), 40u);
  for (const int ranks : {1, 2, 4, 8, 16}) {
    EXPECT_TRUE(std::any_of(cases().begin(), cases().end(), [&](const MeshCase& mesh) { return mesh.ranks == ranks; }));
  }
}

TEST(AxesMatrix, EveryMeshIsTheSerialRun) {
  const ProcessGroup world = test_world();
  const auto serial = serial_runs(world);
  for (const auto& [name, run] : serial) EXPECT_GT(run.back().grad_norm, 0) << name;
  for (const int ranks : {1, 2, 4, 8, 16}) {
    if (ranks > world.size()) break;
    std::vector<MeshCase> same;
    std::copy_if(cases().begin(), cases().end(), std::back_inserter(same),
                 [&](const MeshCase& mesh) { return mesh.ranks == ranks; });
    const int worlds = world.size() / ranks, own = world.rank() / ranks;
    const ProcessGroup part = world.split(own, world.rank(), "ranks of a mesh");
    for (std::size_t i = static_cast<std::size_t>(own); i < same.size(); i += static_cast<std::size_t>(worlds)) {
      const MeshCase& mesh = same[i];
      SCOPED_TRACE(mesh.text());
      TinyTraining training(config_of(mesh), part.split(0, part.rank(), mesh.text()));
      const std::vector<StepResult> run = training.run(0, steps);
      expect_equal(run, serial.at(mesh.variant), mesh);
      expect_schedule(training, run.back());
    }
  }
}

}  // namespace
}  // namespace lyceum
