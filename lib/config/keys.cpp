#include "config/keys.h"

#include <algorithm>

#include "config/names.h"

namespace lyceum {
namespace {

namespace po = boost::program_options;

/// A factor of a loss. Bounds of real numbers are far beyond sensible values, and far from those at which f32
/// overflows.
Domain weight() { return {.low = 0, .high = 1e4}; }

struct Binder {
  std::vector<ConfigKey>& keys;
  void operator()(const char* name, Member member, Domain domain, const char* help) {
    keys.push_back({name, Setting(std::move(member), std::move(domain)), help});
  }
  void operator()(const char* name, const EnumMember& member, const char* help) {
    (*this)(name, member, {.names = member.names()}, help);
  }
};

void bind_run(Binder key, RunConfig& run) {
  key("run.dir", &run.dir, {.required = true}, "folder that the run writes to");
  key("run.steps", &run.steps, {.low = 1}, "total number of optimizer steps");
  key("run.seed", &run.seed, {}, "seed of initial weights and data order");
  key("run.device", &run.device, {.names = {"auto", "cpu", "cuda"}}, "device that kernels run on");
  key("run.precision", &run.precision, {.names = {"f32", "bf16"}}, "type of weights and activations");
  key("run.threads", &run.threads, {.low = 0, .high = 4096},
      "threads per rank; 0: the node's cores divided among its ranks");
  key("run.log_every", &run.log_every, {.low = 0},
      "steps between console lines; 0: 1 in a run of up to 200 steps, else 10");
  key("run.timeout_seconds", &run.timeout_seconds, {.low = 0, .high = 1e9, .low_open = true},
      "longest wait for another rank");
  key("run.audit_every", &run.audit_every, {.low = 0},
      "steps between comparisons of the weights that several ranks hold; if above 0, each update also checks memory");
  key("run.replay_every", &run.replay_every, {.low = 0},
      "steps between those whose gradients are computed again, also on another rank if possible, and compared; 0: "
      "never");
  key("run.rollback", &run.rollback, {.low = 0},
      "how often an unsound run may return to a sound checkpoint and skip the data since then");
  key("run.cuda_graph", &run.cuda_graph, {}, "on a single rank: launch a step on its GPU as one CUDA graph");
  key("run.gemm_choice", &run.gemm_choice, {.names = {"heuristic", "timed"}},
      "on GPUs: for a matrix product use the first algorithm that cuBLASLt proposes, or the fastest of its proposals");
  key("run.gemm_file", &run.gemm_file, {}, "initial algorithms for timed: gemm.json in another run's folder");
  key("run.tensorboard", &run.tensorboard, {}, "also write metrics to run.dir/tensorboard");
  key("run.prometheus", &run.prometheus, {},
      "NAME.prom file for node_exporter's textfile collector, with the metrics of the latest step");
}

void bind_data(Binder key, DataConfig& data) {
  key("data.train", &data.train, {},
      "training tokens: prefix of .bin and .idx files, or a mixture: WEIGHT PREFIX WEIGHT PREFIX …");
  key("data.valid", &data.valid, {}, "validation tokens: one prefix or several");
  key("data.tokenizer", &data.tokenizer, {}, "SentencePiece .model or tokenizer.json that encoded the tokens");
  key("data.chat", &data.chat, {.names = {"auto", "chatml", "llama3", "deepseek", "plain"}},
      "chat template, for generate; auto: the one that data.train was encoded with, if any");
  key("data.end_tokens", &data.end_tokens, {.low = 0},
      "token ids that end a generated text, besides the end of an answer and the end-of-text token");
  key("data.order", &data.order, {.names = {"shuffled", "sequential"}}, "order of the training samples");
  key("data.samples", &data.samples, {.names = {"stream", "packed"}},
      "stream: cut from the stream of all documents; packed: whole documents, with padding that is not trained");
  key("data.document_mask", &data.document_mask, {},
      "tokens attend only to their own document, in which positions count from 0");
  key("data.valid_fraction", &data.valid_fraction, {.low = 0, .high = 1, .high_open = true},
      "without data.valid: share of data.train to hold out, from its end");
  key("data.changed", &data.changed, {.names = {"refuse", "warn"}},
      "on resume: what to do if token files are not those that the checkpoint's run read");
}

void bind_batch(Binder key, BatchConfig& batch) {
  key("batch.global", &batch.global, {.low = 1}, "sequences per step, over all ranks");
  key("batch.micro", &batch.micro, {.low = 0}, "sequences that a rank processes at once; 0: global / data ranks");
  key("batch.seq_len", &batch.seq_len, {.low = 1}, "tokens per sequence");
}

void bind_model(Binder key, ModelConfig& model) {
  key("model.layers", &model.layers, {.low = 1, .high = 10000}, "number of transformer blocks");
  key("model.hidden", &model.hidden, {.low = 1}, "width of the residual stream");
  key("model.heads", &model.heads, {.low = 1}, "attention heads");
  key("model.kv_heads", &model.kv_heads, {.low = 0}, "heads of keys and values; 0: model.heads");
  key("model.head_dim", &model.head_dim, {.low = 0},
      "width of a head, must be even for rotary positions; 0: hidden / heads");
  key("model.ffn_hidden", &model.ffn_hidden, {.low = 0}, "width of a dense FFN; 0: 8/3 hidden, rounded");
  key("model.vocab", &model.vocab, {.low = 2}, "size of the vocabulary");
  key("model.rope_base", &model.rope_base, {.low = 1, .high = 1e12}, "base of the rotary angles");
  key("model.norm_eps", &model.norm_eps, {.low = 1e-20, .high = 1}, "added to the mean square in RMSNorm");
  key("model.init_std", &model.init_std, {.low = 0, .high = 10}, "standard deviation of initial weights");
  key("model.tie_embeddings", &model.tie_embeddings, {}, "use the embedding matrix as output head");
  key("model.first_dense_layers", &model.first_dense_layers, {.low = 0},
      "number of first blocks that keep a dense FFN");
  key("model.attention", &model.attention, {.names = {"mha", "moa"}},
      "mha: multi-head, or grouped-query with kv_heads; moa: a mixture of attention experts");
  key("model.attention_weights", EnumMember(&model.attention_weights, attention_weights_names),
      "softmax: of the scores, with rotary positions; stick_breaking: each key takes a share of what newer keys left");
  key("model.qkv_bias", &model.qkv_bias, {}, "add biases to the projections to queries, keys and values");
  key("model.qk_norm", EnumMember(&model.qk_norm, qk_norm_names),
      "RMSNorm of queries and keys before rotary positions: per head, or over all heads of a token");
  key("model.ffn", EnumMember(&model.ffn, activation_names), "FFNs of three matrices (swiglu) or of two (gelu)");
  key("model.recompute", EnumMember(&model.recompute, recompute_names),
      "in backward, selective: recompute what is cheap; full: recompute all of a block from its input");
  key("model.loss_chunk", &model.loss_chunk, {.low = 0},
      "tokens whose logits are in memory at a time, recomputed in backward; 0: all tokens, not recomputed");
}

void bind_moe(Binder key, MoeConfig& moe) {
  key("moe.experts", &moe.experts, {.low = 0, .high = 65536}, "routed experts of a block; 0: every FFN is dense");
  key("moe.experts_of_layers", &moe.experts_of_layers, {.low = 1, .high = 65536},
      "routed experts of each block after model.first_dense_layers, if they differ; overrides experts");
  key("moe.zero_experts", &moe.zero_experts, {.low = 0, .high = 65536}, "additional routed experts whose output is 0");
  key("moe.copy_experts", &moe.copy_experts, {.low = 0, .high = 65536},
      "additional routed experts whose output is their input");
  key("moe.latent_hidden", &moe.latent_hidden, {.low = 0},
      "width of the routed experts' input and output, between two projections; 0: model.hidden, no projections");
  key("moe.shared_experts", &moe.shared_experts, {.low = 0}, "experts that process every token");
  key("moe.shared_gate", &moe.shared_gate, {},
      "multiply the output of shared experts by the sigmoid of the token's product with a vector");
  key("moe.top_k", &moe.top_k, {.low = 1}, "routed experts that a token chooses");
  key("moe.top_k_start", &moe.top_k_start, {.low = 0},
      "top_k in the first training step; grows linearly to top_k in the last one; 0: always top_k");
  key("moe.expert_hidden", &moe.expert_hidden, {.low = 0}, "width of an expert");
  key("moe.expert_sizes", &moe.expert_sizes, {.low = 1}, "width of each routed expert; overrides expert_hidden");
  key("moe.router", EnumMember(&moe.router, router_names),
      "how a token's experts are chosen: softmax, sigmoid or sqrt_softplus of one matrix; softmax of two (mlp); noisy, "
      "with noise; random, a fixed random matrix; hash, by the token's hash");
  key("moe.router_hidden", &moe.router_hidden, {.low = 1}, "width between the two matrices of an mlp router");
  key("moe.gates", EnumMember(&moe.gates, derived_name, gates_names),
      "factors of the chosen experts' outputs: raw scores, renormalized to a sum of 1, detached (no gradient of the "
      "sum), ones");
  key("moe.renormalize", &moe.renormalize, {}, "the same as moe.gates = renormalized");
  key("moe.group_limit", &moe.group_limit, {.low = 0},
      "most groups (balance.device_groups) that a token's experts may be in; 0: no limit");
  key("moe.even_routing", &moe.even_routing, {}, "send equally many tokens to all experts, to measure speed");
  key("moe.capacity_factor", &moe.capacity_factor, {.low = 0, .high = 1e6},
      "in training, an expert accepts at most this multiple of its even share of a sequence's choices; 0: no limit");
}

void bind_attention_experts(Binder key, AttentionExpertsConfig& experts) {
  key("attention_experts.count", &experts.count, {.low = 0, .high = 65536},
      "with model.attention = moa: number of experts, which share keys and values");
  key("attention_experts.top_k", &experts.top_k, {.low = 1}, "attention experts that a token chooses, by moe.router");
  key("attention_experts.gates", EnumMember(&experts.gates, derived_name, gates_names),
      "as moe.gates; auto: detached with softmax, ones with hash, else renormalized");
}

void bind_sub_dimensions(Binder key, SubDimensionsConfig& parts) {
  key("sub_dimensions.attention", &parts.attention, {.low = 0, .high = 64},
      "pieces that attention divides hidden into; 0: not divided");
  key("sub_dimensions.ffn", &parts.ffn, {.low = 0, .high = 64},
      "pieces that the FFN divides hidden into; 0: not divided");
  key("sub_dimensions.active", &parts.active, {.low = 1}, "pieces that a token uses");
  key("sub_dimensions.shared", &parts.shared, {.low = 0}, "pieces, of the active ones, that every token uses");
  key("sub_dimensions.scaling", EnumMember(&parts.scaling, scaling_names),
      "scaling of the chosen pieces' probabilities: restore, to a sum of all pieces; printed, by the paper's formula");
  key("sub_dimensions.gates", EnumMember(&parts.gates, piece_gates_names),
      "factor of a piece: its probability, or 1 without scaling");
  key("sub_dimensions.fusion_width", &parts.fusion_width, {.low = -1},
      "rows per block of the fusion matrices after each half; 0: no fusion; -1: as many as pieces");
}

void bind_balance(Binder key, BalanceConfig& balance) {
  key("balance.expert", &balance.expert, weight(), "weight of the expert-level balance loss");
  key("balance.device", &balance.device, weight(), "weight of the device-level balance loss");
  key("balance.device_groups", &balance.device_groups, {.low = 0},
      "groups of experts for the device-level loss; 0: parallel.expert");
  key("balance.scope", EnumMember(&balance.scope, scope_names), "tokens that loads are counted over");
  key("balance.z_loss", &balance.z_loss, weight(), "weight of the squared log-sum-exp of router logits");
  key("balance.mutual_information", &balance.mutual_information, weight(),
      "weight of the mutual information of tokens and experts, which training increases");
  key("balance.concentration", &balance.concentration, weight(),
      "weight of the entropy of the mean probabilities, which training decreases");
  key("balance.sub_dimension", &balance.sub_dimension, weight(),
      "weight of the balance loss of the routers of sub_dimensions");
  key("balance.bias_rate", &balance.bias_rate, {.low = 0, .high = 10},
      "change per step of the selection bias of sigmoid and sqrt_softplus routers");
}

void bind_optim(Binder key, OptimConfig& optim) {
  const Domain rate{.low = 0, .high = 1e30};
  const Domain moment{.low = 0, .high = 1, .high_open = true};
  key("optim.lr", &optim.lr, rate, "largest learning rate");
  key("optim.min_lr", &optim.min_lr, rate, "final learning rate of cosine and wsd");
  key("optim.schedule", &optim.schedule, {.names = {"step", "cosine", "wsd", "constant"}},
      "step: times 0.316 at 80 % and at 90 % of the steps; wsd: constant, then linear decay to min_lr");
  key("optim.schedule_steps", &optim.schedule_steps, {.low = 0},
      "length of the schedule in steps; 0: that of the resumed checkpoint, or else run.steps");
  key("optim.warmup_steps", &optim.warmup_steps, {.low = 0}, "steps of linear warm-up");
  key("optim.decay_steps", &optim.decay_steps, {.low = 0}, "last steps of wsd, in which it decays; 0: a tenth");
  key("optim.beta1", &optim.beta1, moment, "decay of AdamW's first moment");
  key("optim.beta2", &optim.beta2, moment, "decay of AdamW's second moment");
  key("optim.eps", &optim.eps, {.low = 1e-30, .high = 1}, "added to the root of the second moment");
  key("optim.weight_decay", &optim.weight_decay, {.low = 0, .high = 100},
      "weight decay of matrices; norm weights are not decayed");
  key("optim.clip_norm", &optim.clip_norm, {.low = 0, .high = 1e9}, "largest global gradient norm; 0: no clipping");
  key("optim.train_only", &optim.train_only, {.hint = "names with *, comma-separated"},
      "tensors to train, all others are frozen; model/layers/*/mlp/gate/weight[8:]: rows from 8 on; empty: train all");
  key("optim.router_penalty", &optim.router_penalty, weight(),
      "weight of a loss: the squared rows of the routers' matrices gate/weight");
  key("optim.router_penalty_from", &optim.router_penalty_from, {.low = 0},
      "first expert whose row is penalised: the number of old experts if new ones were inserted");
}

void bind_parallel(Binder key, ParallelConfig& parallel) {
  key("parallel.pipeline", &parallel.pipeline, {.low = 1}, "pipeline stages");
  key("parallel.tensor", &parallel.tensor, {.low = 1}, "ranks that each dense matrix is split over");
  key("parallel.expert", &parallel.expert, {.low = 1}, "ranks among which a block's experts are divided");
  key("parallel.expert_tensor", &parallel.expert_tensor, {.low = 1}, "ranks that each expert matrix is split over");
  key("parallel.zero", &parallel.zero, {.low = 0, .high = 3},
      "ZeRO stage: data ranks shard 1 the optimizer state, 2 also gradients, 3 also weights");
  key("parallel.schedule", EnumMember(&parallel.schedule, schedule_names), "pipeline schedule");
  key("parallel.virtual_stages", &parallel.virtual_stages, {.low = 1}, "model chunks per pipeline rank");
  key("parallel.sequence", &parallel.sequence, {}, "sequence parallelism over the tensor ranks");
  key("parallel.placement", EnumMember(&parallel.placement, placement_names),
      "experts on ranks: consecutive, wide paired with narrow, or balanced by FLOPs");
  key("parallel.dispatch", EnumMember(&parallel.dispatch, dispatch_names),
      "how tokens reach experts' ranks: directly, or once to each host and from there; auto: hierarchical on several "
      "hosts");
  key("parallel.host_ranks", &parallel.host_ranks, {.low = 0}, "ranks per host, for parallel.dispatch; 0: as started");
  key("parallel.overlap", EnumMember(&parallel.overlap, overlap_names),
      "computed while tokens travel to experts and back: nothing, the shared experts, or also another micro-batch");
  key("parallel.transport", &parallel.transport, {.names = {"auto", "nccl", "staged"}},
      "between GPUs: nccl, or staged: MPI through host memory; auto: nccl unless ranks share a GPU");
  key("parallel.checksums", &parallel.checksums, {}, "add a checksum to tensor messages that are sent by MPI");
}

void bind_cadence(Binder key, Config& config) {
  key("eval.every", &config.eval.every, {.low = 0}, "steps between validations; 0: only at the end");
  key("eval.batches", &config.eval.batches, {.low = 0}, "global batches per validation; 0: all data");
  key("checkpoint.every", &config.checkpoint.every, {.low = 0}, "steps between checkpoints; 0: no limit");
  key("checkpoint.minutes", &config.checkpoint.minutes, {.low = 0, .high = 1e6},
      "minutes between checkpoints, in addition to checkpoint.every; 0: no limit");
  key("checkpoint.keep", &config.checkpoint.keep, {.low = 0}, "number of newest checkpoints to keep; 0: all");
  key("checkpoint.resume", &config.checkpoint.resume, {.required = true, .hint = "auto | none | path"},
      "auto: the newest sound checkpoint, if any");
  key("checkpoint.at_start", &config.checkpoint.at_start, {}, "also save a checkpoint at step 0");
  key("checkpoint.background", &config.checkpoint.background, {},
      "write checkpoints while training continues, from a copy in host memory");
  key("routing.every", &config.routing.every, {.low = 0}, "steps between records in routing.h5; 0: none");
  key("routing.dead_after", &config.routing.dead_after, {.low = 0},
      "steps in a row without a token after which an expert is reported as dead; 0: never");
}

}  // namespace

std::vector<ConfigKey> keys_of(Config& config) {
  std::vector<ConfigKey> keys;
  keys.reserve(256);
  const Binder key{keys};
  bind_run(key, config.run);
  bind_data(key, config.data);
  bind_batch(key, config.batch);
  bind_model(key, config.model);
  bind_moe(key, config.moe);
  bind_attention_experts(key, config.attention_experts);
  bind_sub_dimensions(key, config.sub_dimensions);
  bind_balance(key, config.balance);
  bind_optim(key, config.optim);
  bind_parallel(key, config.parallel);
  bind_cadence(key, config);
  return keys;
}

const ConfigKey* find_key(std::span<const ConfigKey> keys, std::string_view name) {
  const auto found = std::ranges::find(keys, name, &ConfigKey::name);
  return found == keys.end() ? nullptr : &*found;
}

po::options_description options_of(std::span<const ConfigKey> keys) {
  po::options_description options;
  for (const ConfigKey& key : keys) {
    options.add_options()(key.name.c_str(), new Setting(key.setting), key.help.c_str());
  }
  return options;
}

}  // namespace lyceum
