#include "config/attention_experts.h"

#include "config/config.h"
#include "config/findings.h"
#include "config/keys.h"

namespace lyceum {

void declare_keys(ConfigKeys& keys, AttentionExpertsConfig& experts) {
  const KeySection key(keys, KeyRole::identity);
  key("attention_experts.count", &experts.count, {.low = 0, .high = 65536},
      "with model.attention = moa: number of experts, which share keys and values",
      {.other_names = {"attention_experts"}});  // moe.attention_experts in earlier versions
  key("attention_experts.top_k", &experts.top_k, {.low = 1}, "attention experts that a token chooses, by moe.router");
  key("attention_experts.gates", &experts.gates,
      "as moe.gates; auto: renormalized for a sigmoid or sqrt_softplus router, ones for hash, else detached");
}

void check_attention_experts(Findings& findings, const Config& config) {
  const AttentionExpertsConfig& experts = config.attention_experts;
  const bool mixture = config.model.attention == AttentionKind::experts;
  findings.unless(!mixture || experts.count != 0,
                  "model.attention = moa with no attention experts: set attention_experts.count");
  findings.unless(!mixture || experts.count <= 0 || experts.top_k <= experts.count,
                  "attention_experts.top_k = {} is more than attention_experts.count = {}", experts.top_k,
                  experts.count);
  findings.unless(
      mixture || experts.count == 0,
      "attention_experts.count = {} without model.attention = moa: set both, or attention_experts.count = 0",
      experts.count);
}

void simplify_attention_experts(Config& config) {
  if (config.model.attention != AttentionKind::experts) config.attention_experts = {};
}

}  // namespace lyceum
