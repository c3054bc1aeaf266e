#include "config/aliases.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace lyceum {
namespace {

using Alias = std::pair<std::string_view, std::string_view>;
constexpr std::array other_names = std::to_array<Alias>({
    // run
    {"max_steps", "run.steps"},
    {"max_iters", "run.steps"},
    {"train_iters", "run.steps"},
    {"num_train_steps", "run.steps"},
    {"total_steps", "run.steps"},
    {"output_dir", "run.dir"},
    {"out_dir", "run.dir"},
    {"save_dir", "run.dir"},
    {"dtype", "run.precision"},
    {"torch_dtype", "run.precision"},
    {"bf16", "run.precision"},
    {"fp16", "run.precision"},
    {"num_threads", "run.threads"},
    {"log_interval", "run.log_every"},
    {"logging_steps", "run.log_every"},
    {"distributed_timeout_minutes", "run.timeout_seconds"},
    // data
    {"data_path", "data.train"},
    {"train_data_path", "data.train"},
    {"train_file", "data.train"},
    {"valid_data_path", "data.valid"},
    {"validation_file", "data.valid"},
    {"tokenizer_model", "data.tokenizer"},
    {"tokenizer_path", "data.tokenizer"},
    // batch
    {"batch_size", "batch.global"},
    {"global_batch_size", "batch.global"},
    {"train_batch_size", "batch.global"},
    {"micro_batch_size", "batch.micro"},
    {"train_micro_batch_size_per_gpu", "batch.micro"},
    {"per_device_train_batch_size", "batch.micro"},
    {"seq_length", "batch.seq_len"},
    {"sequence_length", "batch.seq_len"},
    {"max_seq_len", "batch.seq_len"},
    {"max_position_embeddings", "batch.seq_len"},
    {"context_length", "batch.seq_len"},
    {"block_size", "batch.seq_len"},
    // model
    {"num_layers", "model.layers"},
    {"n_layer", "model.layers"},
    {"n_layers", "model.layers"},
    {"num_hidden_layers", "model.layers"},
    {"hidden_size", "model.hidden"},
    {"d_model", "model.hidden"},
    {"n_embd", "model.hidden"},
    {"num_attention_heads", "model.heads"},
    {"num_heads", "model.heads"},
    {"n_head", "model.heads"},
    {"n_heads", "model.heads"},
    {"num_key_value_heads", "model.kv_heads"},
    {"num_query_groups", "model.kv_heads"},
    {"n_kv_heads", "model.kv_heads"},
    {"kv_channels", "model.head_dim"},
    {"ffn_hidden_size", "model.ffn_hidden"},
    {"intermediate_size", "model.ffn_hidden"},
    {"vocab_size", "model.vocab"},
    {"rope_theta", "model.rope_base"},
    {"add_qkv_bias", "model.qkv_bias"},
    {"attention_bias", "model.qkv_bias"},
    {"qk_layernorm", "model.qk_norm"},
    {"use_qk_norm", "model.qk_norm"},
    {"rotary_base", "model.rope_base"},
    {"rms_norm_eps", "model.norm_eps"},
    {"norm_epsilon", "model.norm_eps"},
    {"layernorm_epsilon", "model.norm_eps"},
    {"initializer_range", "model.init_std"},
    {"init_method_std", "model.init_std"},
    {"tie_word_embeddings", "model.tie_embeddings"},
    {"first_k_dense_replace", "model.first_dense_layers"},
    {"hidden_act", "model.ffn"},
    {"activation_checkpointing", "model.recompute"},
    {"gradient_checkpointing", "model.recompute"},
    {"recompute_granularity", "model.recompute"},
    // moe, balance
    {"num_experts", "moe.experts"},
    {"num_local_experts", "moe.experts"},
    {"n_routed_experts", "moe.experts"},
    {"n_shared_experts", "moe.shared_experts"},
    {"num_shared_experts", "moe.shared_experts"},
    {"moe_shared_expert_gate", "moe.shared_gate"},
    {"num_experts_per_tok", "moe.top_k"},
    {"moe_router_topk", "moe.top_k"},
    {"topk", "moe.top_k"},
    {"moe_intermediate_size", "moe.expert_hidden"},
    {"moe_ffn_hidden_size", "moe.expert_hidden"},
    {"norm_topk_prob", "moe.renormalize"},
    {"scoring_func", "moe.router"},
    {"moe_router_score_function", "moe.router"},
    {"topk_group", "moe.group_limit"},
    {"moe_router_group_topk", "moe.group_limit"},
    {"n_group", "balance.device_groups"},
    {"moe_router_num_groups", "balance.device_groups"},
    {"moe_router_bias_update_rate", "balance.bias_rate"},
    {"moe_expert_capacity_factor", "moe.capacity_factor"},
    {"attention_experts", "attention_experts.count"},  // moe.attention_experts once
    {"aux_loss_alpha", "balance.expert"},
    {"moe_aux_loss_coeff", "balance.expert"},
    {"router_aux_loss_coef", "balance.expert"},
    {"moe_z_loss_coeff", "balance.z_loss"},
    // optim
    {"lr", "optim.lr"},
    {"learning_rate", "optim.lr"},
    {"max_lr", "optim.lr"},
    {"lr_scheduler", "optim.schedule"},
    {"lr_scheduler_type", "optim.schedule"},
    {"lr_decay_style", "optim.schedule"},
    {"lr_decay_iters", "optim.schedule_steps"},
    {"lr_wsd_decay_iters", "optim.decay_steps"},
    {"warmup", "optim.warmup_steps"},
    {"warmup_iters", "optim.warmup_steps"},
    {"lr_warmup_iters", "optim.warmup_steps"},
    {"adam_beta1", "optim.beta1"},
    {"adam_beta2", "optim.beta2"},
    {"adam_eps", "optim.eps"},
    {"adam_epsilon", "optim.eps"},
    {"wd", "optim.weight_decay"},
    {"clip_grad", "optim.clip_norm"},
    {"grad_clip", "optim.clip_norm"},
    {"max_grad_norm", "optim.clip_norm"},
    {"gradient_clipping", "optim.clip_norm"},
    // parallel
    {"tp", "parallel.tensor"},
    {"tensor_parallel_size", "parallel.tensor"},
    {"tensor_model_parallel_size", "parallel.tensor"},
    {"pp", "parallel.pipeline"},
    {"pipeline_parallel_size", "parallel.pipeline"},
    {"pipeline_model_parallel_size", "parallel.pipeline"},
    {"ep", "parallel.expert"},
    {"expert_parallel_size", "parallel.expert"},
    {"expert_model_parallel_size", "parallel.expert"},
    {"expert_tensor_parallel_size", "parallel.expert_tensor"},
    {"sequence_parallel", "parallel.sequence"},
    {"zero_stage", "parallel.zero"},
    {"zero_optimization", "parallel.zero"},
    {"num_virtual_stages_per_pipeline_rank", "parallel.virtual_stages"},
    // eval, checkpoint
    {"eval_interval", "eval.every"},
    {"eval_steps", "eval.every"},
    {"eval_iters", "eval.batches"},
    {"save_interval", "checkpoint.every"},
    {"save_steps", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep"},
    {"resume_from_checkpoint", "checkpoint.resume"},
});

}  // namespace

std::span<const std::pair<std::string_view, std::string_view>> names_of_other_frameworks() { return other_names; }

std::string_view key_of_other_name(std::string_view name) {
  std::string word(name.substr(name.rfind('.') + 1));  // npos + 1 is 0
  std::ranges::replace(word, '-', '_');
  const auto* const found = std::ranges::find(other_names, word, &Alias::first);
  return found == other_names.end() ? std::string_view() : found->second;
}

}  // namespace lyceum
