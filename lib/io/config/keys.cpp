#include "io/config/keys.h"

#include "io/config/names.h"

namespace lyceum {
namespace {

namespace po = boost::program_options;

struct Binder {
  po::options_description& options;
  void operator()(const char* name, Member member, Domain domain, const char* help) {
    options.add_options()(name, new Setting(std::move(member), std::move(domain)), help);
  }
  void operator()(const char* name, const EnumMember& member, const char* help) {
    (*this)(name, member, {.names = member.names()}, help);
  }
};

void bind_run(Binder key, RunConfig& run) {
  key("run.dir", &run.dir, {.required = true}, "folder that the run writes to");
  key("run.steps", &run.steps, {.low = 1}, "optimizer steps in all");
  key("run.seed", &run.seed, {}, "seed of initial weights and data order");
  key("run.device", &run.device, {.names = {"auto", "cpu", "cuda"}}, "where kernels run");
  key("run.precision", &run.precision, {.names = {"f32", "bf16"}}, "of weights and activations");
  key("run.threads", &run.threads, {.low = 0}, "threads of a rank; 0: the node's cores shared among its ranks");
  key("run.log_every", &run.log_every, {.low = 0},
      "steps between console lines; 0: 1 in a run of up to 200 steps, else 10");
  key("run.timeout_seconds", &run.timeout_seconds, {.low = 0, .low_open = true}, "longest wait for another rank");
  key("run.audit_every", &run.audit_every, {.low = 0},
      "steps between comparisons of weights that several ranks hold; above 0 memory is watched at each update, too");
  key("run.replay_every", &run.replay_every, {.low = 0},
      "steps between those whose gradients are computed twice and compared before they are used; 0: none is");
  key("run.rollback", &run.rollback, {.low = 0},
      "times that a run which is not sound any more goes back to a sound checkpoint and passes over the data since");
  key("run.cuda_graph", &run.cuda_graph, {}, "whether a single rank's step is one launch on its GPU");
  key("run.gemm_choice", &run.gemm_choice, {.names = {"heuristic", "timed"}},
      "on GPUs: the algorithm that cuBLASLt proposes first for a matrix product, or the fastest of its proposals");
  key("run.gemm_file", &run.gemm_file, {}, "algorithms to begin with, when timed: gemm.json of another run's folder");
  key("run.tensorboard", &run.tensorboard, {}, "whether metrics are written to RUN/tensorboard as well");
  key("run.prometheus", &run.prometheus, {},
      "file for node_exporter's textfile collector, NAME.prom: the metrics of the latest step");
}

void bind_data(Binder key, DataConfig& data) {
  key("data.train", &data.train, {},
      "training tokens: prefix of a .bin and .idx file, or a mixture: WEIGHT PREFIX WEIGHT PREFIX …");
  key("data.valid", &data.valid, {}, "validation tokens: one prefix or several");
  key("data.tokenizer", &data.tokenizer, {}, "SentencePiece .model or tokenizer.json of these tokens");
  key("data.order", &data.order, {.names = {"shuffled", "sequential"}}, "of the training samples");
  key("data.samples", &data.samples, {.names = {"stream", "packed"}},
      "cut from the stream of all documents, or made of whole documents, with padding that is not trained");
  key("data.document_mask", &data.document_mask, {},
      "tokens see no other document than their own, in which positions count from 0");
  key("data.valid_fraction", &data.valid_fraction, {.low = 0, .high = 1, .high_open = true},
      "without data.valid: share of data.train held out, its last samples");
  key("data.changed", &data.changed, {.names = {"refuse", "warn"}},
      "on resume: what to do when token files are not those that the checkpoint's run read");
}

void bind_batch(Binder key, BatchConfig& batch) {
  key("batch.global", &batch.global, {.low = 1}, "sequences of one step, over all ranks");
  key("batch.micro", &batch.micro, {.low = 0}, "sequences a rank takes at once; 0: global / data ranks");
  key("batch.seq_len", &batch.seq_len, {.low = 1}, "tokens of a sequence");
}

void bind_model(Binder key, ModelConfig& model) {
  const Domain positive{.low = 0, .low_open = true};
  key("model.layers", &model.layers, {.low = 1, .high = 10000}, "transformer blocks");
  key("model.hidden", &model.hidden, {.low = 1}, "width of the residual stream");
  key("model.heads", &model.heads, {.low = 1}, "attention heads");
  key("model.kv_heads", &model.kv_heads, {.low = 0}, "heads of keys and values; 0: heads");
  key("model.head_dim", &model.head_dim, {.low = 0}, "width of a head, even for rotary positions; 0: hidden / heads");
  key("model.ffn_hidden", &model.ffn_hidden, {.low = 0}, "width of a dense FFN; 0: 8/3 hidden, rounded");
  key("model.vocab", &model.vocab, {.low = 2}, "tokens of the vocabulary");
  key("model.rope_base", &model.rope_base, positive, "base of the rotary angles of softmax");
  key("model.norm_eps", &model.norm_eps, positive, "added to the mean square in RMSNorm");
  key("model.init_std", &model.init_std, {.low = 0}, "standard deviation of initial weights");
  key("model.tie_embeddings", &model.tie_embeddings, {}, "the output head is the embedding matrix");
  key("model.first_dense_layers", &model.first_dense_layers, {.low = 0}, "first blocks that keep a dense FFN");
  key("model.attention", &model.attention, {.names = {"mha", "moa"}},
      "mha, where kv_heads makes it grouped-query; moa: a mixture of attention experts");
  key("model.attention_weights", EnumMember(&model.attention_weights, attention_weights_names),
      "softmax of the scores, with rotary positions; stick_breaking: each key takes its share of what newer ones left");
  key("model.qkv_bias", &model.qkv_bias, {}, "the projections to queries, keys and values have biases");
  key("model.qk_norm", EnumMember(&model.qk_norm, qk_norm_names),
      "RMSNorm of queries and of keys, before rotary positions: of each head, or of all heads of a token together");
  key("model.ffn", EnumMember(&model.ffn, activation_names), "FFNs of three matrices (swiglu) or of two (gelu)");
  key("model.recompute", EnumMember(&model.recompute, recompute_names),
      "selective: what is cheap is made again; full: a block keeps only its input");
  key("model.loss_chunk", &model.loss_chunk, {.low = 0},
      "tokens whose logits are there at a time, made again in backward; 0: those of all tokens, kept");
}

void bind_moe(Binder key, MoeConfig& moe) {
  key("moe.experts", &moe.experts, {.low = 0, .high = 65536}, "routed experts of a block; 0: every FFN is dense");
  key("moe.experts_of_layers", &moe.experts_of_layers, {.low = 1, .high = 65536},
      "of each block behind model.first_dense_layers, where they differ; overrides experts");
  key("moe.zero_experts", &moe.zero_experts, {.low = 0, .high = 65536}, "routed experts after those, which give 0");
  key("moe.copy_experts", &moe.copy_experts, {.low = 0, .high = 65536},
      "routed experts after those, which give their input");
  key("moe.latent_hidden", &moe.latent_hidden, {.low = 0},
      "width that the routed experts work in, between two projections; 0: model.hidden, without any");
  key("moe.shared_experts", &moe.shared_experts, {.low = 0}, "experts that see every token");
  key("moe.shared_gate", &moe.shared_gate, {},
      "their answer is multiplied by the sigmoid of a product of the token and a vector");
  key("moe.top_k", &moe.top_k, {.low = 1}, "routed experts that a token chooses");
  key("moe.top_k_start", &moe.top_k_start, {.low = 0},
      "of the first training step; grows evenly to top_k in the last one; 0: always top_k");
  key("moe.expert_hidden", &moe.expert_hidden, {.low = 0}, "width of an expert");
  key("moe.expert_sizes", &moe.expert_sizes, {.low = 1}, "a width for each routed expert; overrides expert_hidden");
  key("moe.router", EnumMember(&moe.router, router_names),
      "how a token chooses: by softmax, sigmoid or root of softplus of one matrix, by softmax of two (mlp), with "
      "noise, fixed at random; by its hash");
  key("moe.router_hidden", &moe.router_hidden, {.low = 1}, "width between the two matrices of an mlp router");
  key("moe.gates", EnumMember(&moe.gates, derived_name, gates_names),
      "made of the scores of the chosen: raw, renormalized to a sum of one, detached (the sum has no gradient), ones");
  key("moe.renormalize", &moe.renormalize, {}, "another way to write moe.gates = renormalized");
  key("moe.group_limit", &moe.group_limit, {.low = 0},
      "of balance.device_groups, how many a token's experts lie in; 0: any");
  key("moe.even_routing", &moe.even_routing, {}, "tokens go to all experts alike, to measure speed");
  key("moe.capacity_factor", &moe.capacity_factor, {.low = 0},
      "in training, an expert takes at most this many times its even share of a sequence's choices; 0: all");
}

void bind_attention_experts(Binder key, AttentionExpertsConfig& experts) {
  key("attention_experts.count", &experts.count, {.low = 0, .high = 65536},
      "of model.attention = moa: queries and outputs that share keys and values");
  key("attention_experts.top_k", &experts.top_k, {.low = 1}, "of them, how many a token chooses, as moe.router says");
  key("attention_experts.gates", EnumMember(&experts.gates, derived_name, gates_names),
      "as moe.gates; auto: detached, of scores that are no softmax renormalized, of a hash ones");
}

void bind_sub_dimensions(Binder key, SubDimensionsConfig& parts) {
  key("sub_dimensions.attention", &parts.attention, {.low = 0, .high = 64},
      "pieces of hidden for attention; 0: used whole");
  key("sub_dimensions.ffn", &parts.ffn, {.low = 0, .high = 64}, "pieces of hidden for the FFN; 0: used whole");
  key("sub_dimensions.active", &parts.active, {.low = 1}, "pieces that a token uses");
  key("sub_dimensions.shared", &parts.shared, {.low = 0}, "those of them that every token uses");
  key("sub_dimensions.scaling", EnumMember(&parts.scaling, scaling_names),
      "of the chosen pieces' probabilities: restore, they add up to all pieces; printed, the paper's formula");
  key("sub_dimensions.gates", EnumMember(&parts.gates, piece_gates_names),
      "what a piece is multiplied by: its probability, or 1 without scaling");
  key("sub_dimensions.fusion_width", &parts.fusion_width, {.low = -1},
      "rows of a block of the fusion matrices behind each half; 0: no fusion; -1: as many as pieces");
}

void bind_balance(Binder key, BalanceConfig& balance) {
  key("balance.expert", &balance.expert, {.low = 0}, "weight of the expert-level balance loss");
  key("balance.device", &balance.device, {.low = 0}, "weight of the device-level balance loss");
  key("balance.device_groups", &balance.device_groups, {.low = 0}, "groups of experts for it; 0: parallel.expert");
  key("balance.scope", EnumMember(&balance.scope, scope_names), "what the loads are counted over");
  key("balance.z_loss", &balance.z_loss, {.low = 0}, "weight of the squared log-sum of router logits");
  key("balance.mutual_information", &balance.mutual_information, {.low = 0},
      "weight of the mutual information of tokens and experts, which training raises");
  key("balance.concentration", &balance.concentration, {.low = 0},
      "weight of the entropy of the mean probabilities, which training lowers");
  key("balance.sub_dimension", &balance.sub_dimension, {.low = 0},
      "weight of the balance loss of the pieces that sub_dimensions' routers choose");
  key("balance.bias_rate", &balance.bias_rate, {.low = 0},
      "what a step moves the bias of a sigmoid or sqrt_softplus router's choices by");
}

void bind_optim(Binder key, OptimConfig& optim) {
  const Domain moment{.low = 0, .high = 1, .high_open = true};
  key("optim.lr", &optim.lr, {.low = 0}, "largest learning rate");
  key("optim.min_lr", &optim.min_lr, {.low = 0}, "learning rate at the end of a cosine or a wsd");
  key("optim.schedule", &optim.schedule, {.names = {"step", "cosine", "wsd", "constant"}},
      "step: times 0.316 at 80 % and at 90 % of the steps; wsd: constant, then straight down to min_lr");
  key("optim.schedule_steps", &optim.schedule_steps, {.low = 0},
      "steps that the schedule is made for; 0: as the checkpoint has it, without one run.steps");
  key("optim.warmup_steps", &optim.warmup_steps, {.low = 0}, "steps of linear warm-up");
  key("optim.decay_steps", &optim.decay_steps, {.low = 0}, "last steps of a wsd, in which it decays; 0: a tenth");
  key("optim.beta1", &optim.beta1, moment, "decay of AdamW's first moment");
  key("optim.beta2", &optim.beta2, moment, "decay of AdamW's second moment");
  key("optim.eps", &optim.eps, {.low = 0, .low_open = true}, "added to the root of the second moment");
  key("optim.weight_decay", &optim.weight_decay, {.low = 0}, "of matrices; norm weights are not decayed");
  key("optim.clip_norm", &optim.clip_norm, {.low = 0}, "largest global gradient norm; 0: no clipping");
  key("optim.train_only", &optim.train_only, {.hint = "names with *, by commas"},
      "what is trained, all else is frozen: model/layers/*/mlp/gate/weight[8:] is rows from 8 on; none: everything");
  key("optim.router_penalty", &optim.router_penalty, {.low = 0},
      "weight of the squares of the rows of routers' matrices gate/weight, as a loss");
  key("optim.router_penalty_from", &optim.router_penalty_from, {.low = 0},
      "first expert whose row is penalised: the number of old ones, where others were inserted");
}

void bind_parallel(Binder key, ParallelConfig& parallel) {
  key("parallel.pipeline", &parallel.pipeline, {.low = 1}, "pipeline stages");
  key("parallel.tensor", &parallel.tensor, {.low = 1}, "ranks that share each dense matrix");
  key("parallel.expert", &parallel.expert, {.low = 1}, "ranks that share out a block's experts");
  key("parallel.expert_tensor", &parallel.expert_tensor, {.low = 1}, "ranks that share each expert matrix");
  key("parallel.zero", &parallel.zero, {.low = 0, .high = 3},
      "ZeRO: data ranks share out 1 optimizer state, 2 gradients, 3 values too");
  key("parallel.schedule", EnumMember(&parallel.schedule, schedule_names), "of the pipeline");
  key("parallel.virtual_stages", &parallel.virtual_stages, {.low = 1}, "model chunks of a pipeline rank");
  key("parallel.sequence", &parallel.sequence, {}, "sequence parallelism over the tensor ranks");
  key("parallel.placement", EnumMember(&parallel.placement, placement_names),
      "of experts on ranks: in runs, wide with narrow, level in FLOPs");
  key("parallel.dispatch", EnumMember(&parallel.dispatch, dispatch_names),
      "of tokens to experts' ranks: straight, or once to each host and on from there; auto: by hosts over several");
  key("parallel.host_ranks", &parallel.host_ranks, {.low = 0}, "ranks of a host, for parallel.dispatch; 0: as started");
  key("parallel.transport", &parallel.transport, {.names = {"auto", "nccl", "staged"}},
      "between GPUs: NCCL, MPI by way of the host; auto: NCCL unless ranks share a GPU");
  key("parallel.checksums", &parallel.checksums, {}, "whether messages of tensors that travel by MPI have a checksum");
}

void bind_cadence(Binder key, Config& config) {
  key("eval.every", &config.eval.every, {.low = 0}, "steps between validations; 0: at the end only");
  key("eval.batches", &config.eval.batches, {.low = 0}, "global batches that a validation reads; 0: all");
  key("checkpoint.every", &config.checkpoint.every, {.low = 0}, "steps between checkpoints; 0: at the end only");
  key("checkpoint.keep", &config.checkpoint.keep, {.low = 0}, "newest checkpoints that are kept; 0: all");
  key("checkpoint.resume", &config.checkpoint.resume, {.required = true, .hint = "auto | none | path"},
      "auto: the newest checkpoint that is sound, if any");
  key("checkpoint.at_start", &config.checkpoint.at_start, {}, "save step 0 as well");
  key("checkpoint.background", &config.checkpoint.background, {},
      "write checkpoints while training goes on, from a copy in host memory");
  key("routing.every", &config.routing.every, {.low = 0}, "steps between records of routing.h5; 0: none");
  key("routing.dead_after", &config.routing.dead_after, {.low = 0},
      "steps without a token after which an expert is told as dead; 0: never");
}

}  // namespace

void bind(po::options_description& options, Config& config) {
  const Binder key{options};
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
}

const Setting& setting_of(const po::option_description& key) { return static_cast<const Setting&>(*key.semantic()); }

}  // namespace lyceum
