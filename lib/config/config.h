#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/activation_kind.h"
#include "kernels/piece_scaling.h"
#include "kernels/routing_policy.h"
#include "parallel/pipeline/schedule_kind.h"

namespace lyceum {

/// The configuration of a run: defaults are here and nowhere else; `section.key` of an INI file or of the command
/// line is the member of the same name. See config_binding.h for how values arrive.
struct RunConfig {
  std::string dir = "runs/default";
  std::int64_t steps = 1000;
  std::uint64_t seed = 1;
  std::string device = "auto";            // auto, cpu, cuda
  std::string precision = "f32";          // f32, bf16
  int threads = 0;                        // OpenMP threads of a rank; 0: the node's cores shared among its ranks
  std::int64_t log_every = 0;             // steps between console lines; 0: log_every_of() says
  double timeout_seconds = 600;           // longest wait for another rank
  std::int64_t audit_every = 10;          // steps between comparisons of copies; 0: memory is not watched at all
  std::int64_t replay_every = 1000;       // steps between those that are computed again; 0: none is
  std::int64_t rollback = 0;              // times that a run which goes wrong goes back by itself
  bool cuda_graph = true;                 // a step of a single rank is recorded once, then launched as a whole
  std::string gemm_choice = "heuristic";  // heuristic, timed
  std::string gemm_file;                  // of another run, for gemm_choice = timed
  bool tensorboard = false;               // events for it in dir/tensorboard
  std::string prometheus;                 // text file of the latest step; none when empty
};

/// What holds where nobody chose a number: a line a step in a short run.
inline std::int64_t log_every_of(const RunConfig& run) {
  if (run.log_every > 0) return run.log_every;
  return run.steps <= 200 ? 1 : 10;
}

struct DataConfig {
  std::string train, valid;              // prefixes of .bin/.idx, see data_sources()
  std::string tokenizer;                 // SentencePiece .model or tokenizer.json
  std::string chat = "auto";             // template of chats, see chat_templates(); auto: that of the files of train
  std::vector<std::int64_t> end_tokens;  // that end a generated text, see end_tokens()
  std::string order = "shuffled";        // shuffled, sequential
  std::string samples = "stream";        // stream, packed
  bool document_mask = false;            // tokens see no other document than their own
  double valid_fraction = 0;             // with no data.valid: share of train's samples held out, the last ones
  std::string changed = "refuse";        // refuse, warn: when a checkpoint's run read other tokens under the same name
};

struct BatchConfig {
  std::int64_t global = 8, micro = 0;  // sequences; micro 0: global / data ranks
  std::int64_t seq_len = 512;
};

/// What backward makes again: nothing, what is cheap to make, or all of a block but its input.
enum class Recompute { none, selective, full };

/// How a query weighs the values that it sees: AttentionForward or StickBreakingForward.
enum class AttentionWeights { softmax, stick_breaking };

/// What an RMSNorm of queries and keys is over: each head [Qwen3], or all heads of a token [OLMoE].
enum class QkNormKind { none, head, all };

struct ModelConfig {
  std::int64_t layers = 4, hidden = 256, heads = 4;
  std::int64_t kv_heads = 0;    // 0: heads
  std::int64_t head_dim = 0;    // 0: hidden / heads
  std::int64_t ffn_hidden = 0;  // width of a dense FFN; 0: 8/3 hidden, rounded
  std::int64_t vocab = 4096;
  double rope_base = 10000;  // of attention by softmax; sticks have no positions
  double norm_eps = 1e-6;
  double init_std = 0.006;
  bool tie_embeddings = false;
  std::int64_t first_dense_layers = 0;
  std::string attention = "mha";  // mha, moa (see AttentionExpertsConfig)
  AttentionWeights attention_weights = AttentionWeights::softmax;
  bool qkv_bias = false;
  QkNormKind qk_norm = QkNormKind::none;
  Recompute recompute = Recompute::none;
  Activation ffn = Activation::swiglu;
  std::int64_t loss_chunk = 0;  // tokens whose logits are there at a time; 0: all, kept until backward
};

/// How a router makes its logits, see model/router.h.
enum class RouterKind { softmax, sigmoid, sqrt_softplus, mlp, noisy, random, hash };

/// The scores that it computes from the logits; a hash has none. Scores other than softmax are compared with a bias.
inline Scores scores_of(RouterKind router) {
  switch (router) {
    case RouterKind::sigmoid: return Scores::sigmoid;
    case RouterKind::sqrt_softplus: return Scores::sqrt_softplus;
    default: return Scores::softmax;
  }
}

struct MoeConfig {
  std::int64_t experts = 0;                     // routed; 0: every FFN is dense
  std::vector<std::int64_t> experts_of_layers;  // of each layer that routes; overrides experts
  /// Routed after them, in this order, without weights: experts that give 0, experts that give their input.
  std::int64_t zero_experts = 0, copy_experts = 0;
  std::int64_t latent_hidden = 0;  // width that the routed experts work in; 0: model.hidden
  std::int64_t shared_experts = 0;
  bool shared_gate = false;  // their answer times a sigmoid of the token's own [Qwen2-MoE]
  std::int64_t top_k = 1;
  std::int64_t top_k_start = 0;  // in the first step of a run, top_k in the last one; 0: top_k in all
  std::int64_t expert_hidden = 0;
  std::vector<std::int64_t> expert_sizes;  // a width an expert; overrides expert_hidden
  RouterKind router = RouterKind::softmax;
  std::optional<Gates> gates;        // none: gates_of() says
  bool renormalize = false;          // another way to write gates = renormalized
  std::int64_t group_limit = 0;      // of balance.device_groups, those that a token's experts lie in; 0: all
  double capacity_factor = 0;        // of a sequence's choices that an expert takes, times an even share; 0: all
  std::int64_t router_hidden = 256;  // width between the two matrices of an mlp router
  bool even_routing = false;         // choices that fall on all experts alike, to measure speed
};

/// Routed experts that a token chooses from: those with weights, and behind them those without.
inline std::int64_t choices_of(const MoeConfig& moe) { return moe.experts + moe.zero_experts + moe.copy_experts; }

/// The keys that say so, for messages.
inline const char* choices_keys(const MoeConfig& moe) {
  return choices_of(moe) > moe.experts ? "moe.experts + moe.zero_experts + moe.copy_experts" : "moe.experts";
}

/// What holds where nobody chose gates: ones for a hash, which has no scores, else renormalized or raw.
inline Gates gates_of(const MoeConfig& moe) {
  if (moe.gates) return *moe.gates;
  if (moe.router == RouterKind::hash) return Gates::ones;
  return moe.renormalize ? Gates::renormalized : Gates::raw;
}

/// Experts of attention, of model.attention = moa: each has its own queries and output, and all have the same
/// keys and values [ModuleFormer]. Their router is of the kind that MoeConfig says.
struct AttentionExpertsConfig {
  std::int64_t count = 0, top_k = 1;
  std::optional<Gates> gates;  // none: attention_gates_of() says
};

/// What the pieces of a token are multiplied by, before they are scaled: their probabilities, or 1 without scaling.
enum class PieceGates { raw, ones };

/// Sub-dimensions of the residual stream, of which a token uses some [MoHD]. attention, ffn 0: that part uses all.
struct SubDimensionsConfig {
  std::int64_t attention = 0, ffn = 0;  // pieces that hidden is cut into, for each half of a block
  std::int64_t active = 1, shared = 0;  // pieces that a token uses, and those of them that every token uses
  PieceScaling scaling = PieceScaling::restore;
  PieceGates gates = PieceGates::raw;
  std::int64_t fusion_width = -1;  // blocks of the Monarch matrix behind each half; 0: no fusion; −1: as many as pieces
};

/// What choices and probabilities of balance losses are counted over: each sequence, or a pass over all data ranks.
enum class BalanceScope { sequence, batch };

struct BalanceConfig {
  double expert = 0, device = 0;   // α₁, α₂
  std::int64_t device_groups = 0;  // 0: parallel.expert
  BalanceScope scope = BalanceScope::sequence;
  double z_loss = 0;
  double mutual_information = 0, concentration = 0;
  double sub_dimension = 0;  // β of MoHD
  double bias_rate = 0;      // of the bias of sigmoid and sqrt_softplus, a step; 0: it stays as it is
};

struct OptimConfig {
  double lr = 1e-3, min_lr = 0;
  std::string schedule = "step";    // step, cosine, wsd, constant
  std::int64_t schedule_steps = 0;  // it is made for; 0: the checkpoint's, else run.steps
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;  // at the end of a wsd; 0: a tenth of the schedule
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip_norm = 1.0;
  std::vector<std::string> train_only = {};  // patterns of tensors, see TensorPattern; none: all
  double router_penalty = 0;                 // λ of λ‖A‖² for rows A of routers' matrices
  std::int64_t router_penalty_from = 0;      // first expert whose row that holds for
};

/// Of experts on ranks, see parallel/expert/placement.h.
enum class PlacementKind { contiguous, pairs, cost };

/// How tokens go to the ranks of their experts: by way of hosts where ranks fill several of them.
enum class DispatchKind { automatic, direct, hierarchical };

/// What a rank computes while tokens travel to their experts and back: nothing, the shared experts, or besides these
/// another micro-batch.
enum class Overlap { none, shared, batches };

struct ParallelConfig {
  int pipeline = 1, tensor = 1, expert = 1, expert_tensor = 1, zero = 0;
  ScheduleKind schedule = ScheduleKind::one_forward_one_backward;
  int virtual_stages = 1;
  bool sequence = false;
  PlacementKind placement = PlacementKind::contiguous;
  DispatchKind dispatch = DispatchKind::automatic;
  int host_ranks = 0;  // ranks of a host, neighbours; 0: not known
  Overlap overlap = Overlap::shared;
  std::string transport = "auto";  // of tensors between GPUs: nccl, staged (through the host), auto
  bool checksums = false;          // with every message of tensors that travels by MPI
};

struct EvalConfig {
  std::int64_t every = 0;    // steps between validations; 0: at the end only
  std::int64_t batches = 8;  // global batches a validation reads; 0: all
};

struct CheckpointConfig {
  std::int64_t every = 0;  // steps between checkpoints; 0: they are not counted
  double minutes = 10;     // of training between checkpoints; 0: no clock is read
  std::int64_t keep = 2;   // newest complete ones kept; 0: all
  std::string resume = "auto";
  bool at_start = false;
  bool background = false;  // written while training goes on, from a copy in host memory
};

struct RoutingConfig {
  std::int64_t every = 10;        // steps between records; 0: none
  std::int64_t dead_after = 100;  // steps without a token; 0: no expert counts as dead
};

struct Config {
  RunConfig run;
  DataConfig data;
  BatchConfig batch;
  ModelConfig model;
  MoeConfig moe;
  AttentionExpertsConfig attention_experts;
  SubDimensionsConfig sub_dimensions;
  BalanceConfig balance;
  OptimConfig optim;
  ParallelConfig parallel;
  EvalConfig eval;
  CheckpointConfig checkpoint;
  RoutingConfig routing;
};

/// Whether a step runs a backward pass and the forward pass of the next micro-batch side by side.
inline bool overlaps_batches(const ParallelConfig& parallel) {
  return parallel.overlap == Overlap::batches && parallel.expert > 1;
}

/// Width that the routed experts work in.
inline std::int64_t bank_hidden(const Config& config) {
  return config.moe.latent_hidden > 0 ? config.moe.latent_hidden : config.model.hidden;
}

/// Of so many choices of a router, those at least that the groups of moe.group_limit have together.
inline std::int64_t open_choices(const Config& config, std::int64_t choices) {
  return config.moe.group_limit * (choices / config.balance.device_groups);
}

/// What holds where nobody chose them: ones for a hash, renormalized for scores that are no softmax, else detached.
inline Gates attention_gates_of(const Config& config) {
  if (config.attention_experts.gates) return *config.attention_experts.gates;
  if (config.moe.router == RouterKind::hash) return Gates::ones;
  return scores_of(config.moe.router) == Scores::softmax ? Gates::detached : Gates::renormalized;
}

}  // namespace lyceum
