#include "config/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "config/keys.h"
#include "config/names.h"
#include "core/error.h"
#include "core/gpu.h"
#include "core/printable.h"
#include "io/text/table.h"
#include "kernels/router.h"
#include "parallel/expert/placement.h"

namespace lyceum {

std::int64_t fewest_ranks(const ParallelConfig& parallel) {
  const auto positive = [](int ranks) { return std::clamp<std::int64_t>(ranks, 1, 1 << 20); };
  const std::int64_t stage =
      std::lcm(positive(parallel.tensor), positive(parallel.expert) * positive(parallel.expert_tensor));
  return std::min<std::int64_t>(stage, 1 << 30) * positive(parallel.pipeline);
}

int expert_hosts(const ParallelConfig& parallel) {
  const std::int64_t ranks = std::int64_t{parallel.expert} * parallel.expert_tensor, host = parallel.host_ranks;
  const bool full = host > parallel.expert_tensor && parallel.expert_tensor > 0 && host % parallel.expert_tensor == 0 &&
                    ranks > host && ranks % host == 0;
  return full && parallel.dispatch != DispatchKind::direct ? static_cast<int>(ranks / host) : 1;
}

namespace {

class Findings {
 public:
  /// Without `advice`, texts may lack what to set instead.
  explicit Findings(bool advice = true) : advice_(advice) {}

  template <class... Args>
  void unless(bool fine, fmt::format_string<Args...> text, Args&&... args) {
    if (!fine) found_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  /// Returns what to set instead, as `advise` says; calls it only if it is needed.
  template <class Advise>
  std::string advice(bool fine, Advise&& advise) const {
    return fine || !advice_ ? std::string() : advise();
  }
  std::vector<std::string> take() { return std::move(found_); }

 private:
  std::vector<std::string> found_;
  bool advice_;
};

/// Whether n splits into d equal parts. True for a d below 1, which the key's own range refuses.
bool divides(std::int64_t d, std::int64_t n) { return d < 1 || n % d == 0; }

/// Ranks that see different sequences, 0 when `world` does not divide so.
std::int64_t data_ranks(const ParallelConfig& parallel, int world) {
  const std::int64_t model_ranks = std::int64_t{parallel.pipeline} * parallel.tensor;
  return model_ranks > 0 && world % model_ranks == 0 ? world / model_ranks : 0;
}

/// Sequences that a rank sees in a step, and in one micro-batch of it.
struct RankBatch {
  std::int64_t share, micro;
};

/// Nothing where the ranks, or the batch among them, do not divide so.
std::optional<RankBatch> rank_batch(const Config& config, int world) {
  const std::int64_t data = data_ranks(config.parallel, world);
  if (data == 0 || config.batch.global % data != 0) return std::nullopt;
  const std::int64_t share = config.batch.global / data;
  return RankBatch{share, config.batch.micro > 0 ? config.batch.micro : share};
}

void check_ranges(Findings& findings, const Config& config) {
  Config copy = config;
  for (const ConfigKey& key : keys_of(copy)) {
    const std::string problem = key.setting.problem();
    findings.unless(problem.empty(), "{} = {}: {}", key.name, key.setting.text(), problem);
  }
}

void check_device(Findings& findings, const Config& config) {
  findings.unless(built_with_cuda || config.run.device != "cuda",
                  "run.device = cuda: this build has no CUDA; set run.device = cpu, or build with -DLYCEUM_CUDA=ON");
}

void check_model(Findings& findings, const ModelConfig& model) {
  findings.unless(divides(model.kv_heads, model.heads),
                  "model.kv_heads = {} does not divide model.heads = {}: each must serve the same number of heads",
                  model.kv_heads, model.heads);
  const bool derived = model.head_dim == 0;
  const bool splits = divides(model.heads, model.hidden);
  findings.unless(!derived || splits,
                  "model.heads = {} does not divide model.hidden = {}: change one, or set model.head_dim", model.heads,
                  model.hidden);
  const std::int64_t head_dim = derived && splits && model.heads > 0 ? model.hidden / model.heads : model.head_dim;
  const bool rotary = model.attention_weights == AttentionWeights::softmax;
  findings.unless(!rotary || divides(2, head_dim),
                  "heads have the odd width {} (model.head_dim): RoPE rotates pairs, set an even width", head_dim);
  findings.unless(rotary || model.rope_base == ModelConfig{}.rope_base,
                  "model.rope_base = {} with model.attention_weights = stick_breaking, which has no rotary positions: "
                  "remove model.rope_base",
                  model.rope_base);
  if (model.attention == "moa") {
    findings.unless(!model.qkv_bias,
                    "model.qkv_bias = true with model.attention = moa, whose experts have none: set one or the other");
    findings.unless(model.qk_norm == QkNormKind::none,
                    "model.qk_norm = {} with model.attention = moa, whose experts have none: set one or the other",
                    name_of(model.qk_norm));
  }
  findings.unless(model.first_dense_layers <= model.layers,
                  "model.first_dense_layers = {} is more than model.layers = {}", model.first_dense_layers,
                  model.layers);
}

/// How many experts a layer routes to, and the words for it in messages.
struct ExpertNumber {
  std::int64_t experts, choices;  // with weights; and those without besides
  std::string told;               // "moe.experts = 8", "the 8 experts of layer 3"
  std::string told_choices;       // likewise
};

/// Those of all layers that route, each number once.
std::vector<ExpertNumber> expert_numbers(const Config& config) {
  const MoeConfig& moe = config.moe;
  const std::vector<std::int64_t>& own = moe.experts_of_layers;
  if (own.empty()) {
    return {{.experts = moe.experts,
             .choices = choices_of(moe),
             .told = fmt::format("moe.experts = {}", moe.experts),
             .told_choices = fmt::format("{} = {}", choices_keys(moe), choices_of(moe))}};
  }
  std::vector<ExpertNumber> numbers;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (std::ranges::find(numbers, own[i], &ExpertNumber::experts) != numbers.end()) continue;
    const std::int64_t layer = config.model.first_dense_layers + static_cast<std::int64_t>(i);
    const std::int64_t choices = own[i] + choices_of(moe) - moe.experts;
    const auto told = [&](std::int64_t n) { return fmt::format("the {} of layer {}", count_text(n, "expert"), layer); };
    numbers.push_back({.experts = own[i], .choices = choices, .told = told(own[i]), .told_choices = told(choices)});
  }
  return numbers;
}

/// That numbers of parameters, and bytes of them, can be counted.
void check_size(Findings& findings, const Config& config) {
  constexpr double most = 1e15;
  const ModelConfig& model = config.model;
  const MoeConfig& moe = config.moe;
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double head_dim = model.head_dim > 0 ? number(model.head_dim) : number(model.hidden) / number(model.heads);
  double width = std::max(number(model.ffn_hidden), 8.0 / 3 * number(model.hidden));
  for (const ExpertNumber& layer : expert_numbers(config)) {
    width = std::max(width, (number(layer.experts) + number(moe.shared_experts)) * (number(moe.expert_hidden) + 1));
  }
  width = std::max(width, std::accumulate(moe.expert_sizes.begin(), moe.expert_sizes.end(), 0.0));
  const double attention = 4 * number(model.heads) * head_dim * (1 + number(config.attention_experts.count));
  const double size = number(model.hidden) * (2 * number(model.vocab) + number(model.layers) * (attention + 3 * width));
  findings.unless(!(size > most),
                  "a model of about {:.2g} parameters: at most {:.0g} are supported, make "
                  "model.hidden, model.layers, model.vocab or its widths smaller",
                  size, most);
}

/// That moe.experts_of_layers goes with what other keys say of the same.
void check_experts_of_layers(Findings& findings, const Config& config) {
  const std::vector<std::int64_t>& own = config.moe.experts_of_layers;
  if (own.empty()) return;
  const std::int64_t layers = config.model.layers - config.model.first_dense_layers;
  findings.unless(config.moe.experts > 0,
                  "moe.experts_of_layers lists {} numbers but moe.experts = 0: set moe.experts = {}", own.size(),
                  *std::ranges::max_element(own));
  findings.unless(std::ssize(own) == layers,
                  "moe.experts_of_layers lists {} numbers for the {} after model.first_dense_layers = {}: give one "
                  "per layer",
                  own.size(), count_text(layers, "layer"), config.model.first_dense_layers);
  findings.unless(config.moe.expert_sizes.empty(),
                  "moe.experts_of_layers with moe.expert_sizes, which lists the experts of every layer: set one or the "
                  "other");
}

void check_moe(Findings& findings, const Config& config) {
  const MoeConfig& moe = config.moe;
  check_experts_of_layers(findings, config);
  findings.unless(!moe.shared_gate || (moe.experts > 0 && moe.shared_experts > 0),
                  "moe.shared_gate = true with moe.experts = {} and moe.shared_experts = {}: set both, or "
                  "moe.shared_gate = false",
                  moe.experts, moe.shared_experts);
  if (moe.experts <= 0) {
    findings.unless(moe.shared_experts <= 0 || moe.expert_hidden > 0,
                    "the shared experts have no width: set moe.expert_hidden");
    findings.unless(moe.expert_sizes.empty(),
                    "moe.expert_sizes lists {} widths but moe.experts = 0: set moe.experts = {}",
                    moe.expert_sizes.size(), moe.expert_sizes.size());
    findings.unless(config.parallel.expert <= 1,
                    "parallel.expert = {} with no experts to divide: set parallel.expert = 1, or moe.experts",
                    config.parallel.expert);
    findings.unless(moe.top_k_start <= 0,
                    "moe.top_k_start = {} with no experts to choose: set moe.top_k_start = 0, or moe.experts",
                    moe.top_k_start);
    for (const auto& [key, value] :
         {std::pair{"moe.zero_experts", moe.zero_experts}, std::pair{"moe.copy_experts", moe.copy_experts},
          std::pair{"moe.latent_hidden", moe.latent_hidden}}) {
      findings.unless(value <= 0, "{} = {} with no routed experts: set {} = 0, or moe.experts", key, value, key);
    }
    findings.unless(!(moe.capacity_factor > 0),
                    "moe.capacity_factor = {} with no experts to limit: set moe.capacity_factor = 0, or moe.experts",
                    moe.capacity_factor);
    return;
  }
  for (const ExpertNumber& layer : expert_numbers(config)) {
    findings.unless(moe.top_k <= layer.choices, "moe.top_k = {} is more than {}", moe.top_k, layer.told_choices);
  }
  findings.unless(
      moe.latent_hidden <= 0 || moe.latent_hidden < config.model.hidden,
      "moe.latent_hidden = {} is not below model.hidden = {}: set a smaller width, or moe.latent_hidden = 0",
      moe.latent_hidden, config.model.hidden);
  findings.unless(moe.top_k_start <= moe.top_k, "moe.top_k_start = {} is more than moe.top_k = {}", moe.top_k_start,
                  moe.top_k);
  findings.unless(moe.expert_sizes.empty() || static_cast<std::int64_t>(moe.expert_sizes.size()) == moe.experts,
                  "moe.expert_sizes lists {} widths for moe.experts = {}: give one width per expert",
                  moe.expert_sizes.size(), moe.experts);
  findings.unless(moe.expert_hidden > 0 || !moe.expert_sizes.empty(),
                  "the experts have no width: set moe.expert_hidden or moe.expert_sizes");
  findings.unless(moe.expert_hidden > 0 || moe.expert_sizes.empty() || moe.shared_experts == 0,
                  "the shared experts have no width: set moe.expert_hidden in addition to moe.expert_sizes");
  for (const auto& [experts, choices, told, told_choices] : expert_numbers(config)) {
    findings.unless(config.parallel.expert <= experts, "parallel.expert = {} is more than {}: a rank would hold none",
                    config.parallel.expert, told);
    findings.unless(config.balance.device_groups <= experts,
                    "balance.device_groups = {} is more than {}: a group would be empty", config.balance.device_groups,
                    told);
  }
}

/// What configures a router in addition to its kind.
struct RouterKeys {
  const char *top_k_key, *gates_key;
  std::int64_t top_k;
  Gates gates;
};
/// Of the routers that the model has: of FFNs, of attention.
std::vector<RouterKeys> routers_of(const Config& config) {
  std::vector<RouterKeys> routers;
  if (config.moe.experts > 0) routers.push_back({"moe.top_k", "moe.gates", config.moe.top_k, gates_of(config.moe)});
  if (config.model.attention == "moa") {
    routers.push_back({"attention_experts.top_k", "attention_experts.gates", config.attention_experts.top_k,
                       attention_gates_of(config)});
  }
  return routers;
}

/// What a router that has no softmax leaves without a meaning.
void check_separate_scores(Findings& findings, const Config& config) {
  const std::string kind = name_of(config.moe.router);
  for (const RouterKeys& router : routers_of(config)) {
    findings.unless(router.gates == Gates::raw || router.gates == Gates::renormalized,
                    "{} = {} with moe.router = {}: set {} = raw or renormalized", router.gates_key,
                    name_of(router.gates), kind, router.gates_key);
  }
  findings.unless(!(config.balance.z_loss > 0),
                  "balance.z_loss = {} with moe.router = {}, whose scores have no log-sum-exp: set balance.z_loss = 0",
                  config.balance.z_loss, kind);
}

/// What a router that has one choice and no scores leaves without a meaning.
void check_hash(Findings& findings, const Config& config) {
  const MoeConfig& moe = config.moe;
  const BalanceConfig& balance = config.balance;
  for (const RouterKeys& router : routers_of(config)) {
    findings.unless(router.top_k <= 1, "{} = {} with moe.router = hash, which chooses one expert per token: set {} = 1",
                    router.top_k_key, router.top_k, router.top_k_key);
    findings.unless(router.gates == Gates::ones, "{} = {} with moe.router = hash, which has no scores: set {} = ones",
                    router.gates_key, name_of(router.gates), router.gates_key);
  }
  findings.unless(!moe.even_routing, "moe.even_routing = true with moe.router = hash: set one or the other");
  findings.unless(
      moe.top_k_start == 0,
      "moe.top_k_start = {} with moe.router = hash, which chooses one expert per token: set moe.top_k_start = 0",
      moe.top_k_start);
  for (const auto& [key, value] :
       {std::pair{"moe.zero_experts", moe.zero_experts}, std::pair{"moe.copy_experts", moe.copy_experts}}) {
    findings.unless(value <= 0, "{} = {} with moe.router = hash, which spreads tokens over moe.experts: set {} = 0",
                    key, value, key);
  }
  for (const auto& [key, value] :
       {std::pair{"balance.expert", balance.expert}, std::pair{"balance.device", balance.device},
        std::pair{"balance.z_loss", balance.z_loss},
        std::pair{"balance.mutual_information", balance.mutual_information},
        std::pair{"balance.concentration", balance.concentration}}) {
    findings.unless(!(value > 0), "{} = {} with moe.router = hash, which is not trained: set {} = 0", key, value, key);
  }
}

/// That a token finds its experts in the groups that it may choose.
void check_groups(Findings& findings, const Config& config) {
  const MoeConfig& moe = config.moe;
  const std::int64_t limit = moe.group_limit;
  const std::int64_t groups = config.balance.device_groups;
  findings.unless(moe.router != RouterKind::hash,
                  "moe.group_limit = {} with moe.router = hash: set moe.group_limit = 0", limit);
  if (moe.router == RouterKind::hash) return;
  findings.unless(config.parallel.placement == PlacementKind::contiguous,
                  "moe.group_limit = {} with parallel.placement = {}, which has other groups: set contiguous", limit,
                  name_of(config.parallel.placement));
  findings.unless(groups > 0,
                  "moe.group_limit = {} needs balance.device_groups: set the number of groups, the same for every "
                  "mesh",
                  limit);
  if (groups <= 0) return;
  findings.unless(limit <= groups, "moe.group_limit = {} is more than balance.device_groups = {}", limit, groups);
  findings.unless(groups <= most_groups, "balance.device_groups = {} with moe.group_limit = {}: set at most {} groups",
                  groups, limit, most_groups);
  for (const ExpertNumber& layer : expert_numbers(config)) {
    findings.unless(divides(groups, layer.experts),
                    "balance.device_groups = {} does not divide {}, which moe.group_limit = {} needs", groups,
                    layer.told, limit);
    if (!divides(groups, layer.experts) || limit > groups) continue;
    const std::int64_t open = open_choices(config, layer.choices);
    findings.unless(moe.top_k <= open || moe.top_k > layer.choices,
                    "moe.top_k = {} is more than the {} experts of moe.group_limit = {} groups", moe.top_k, open,
                    limit);
  }
}

/// That the router's keys go together.
void check_router(Findings& findings, const Config& config) {
  const MoeConfig& moe = config.moe;
  findings.unless(
      !moe.renormalize || gates_of(moe) == Gates::renormalized,
      "moe.renormalize = true with moe.gates = {}: set moe.renormalize = false, or moe.gates = renormalized",
      name_of(gates_of(moe)));
  const bool has_bias = scores_of(moe.router) != Scores::softmax;
  findings.unless(!(config.balance.bias_rate > 0) || has_bias,
                  "balance.bias_rate = {} with moe.router = {}, which has no bias: set moe.router = sigmoid or "
                  "sqrt_softplus, or balance.bias_rate = 0",
                  config.balance.bias_rate, name_of(moe.router));
  if (routers_of(config).empty()) return;
  if (has_bias) check_separate_scores(findings, config);
  if (moe.router == RouterKind::hash) check_hash(findings, config);
  if (moe.experts > 0 && moe.group_limit > 0) check_groups(findings, config);
}

/// That experts lie in pairs over the ranks and, where they are numbered, over the groups of the device-level loss.
void check_pairs(Findings& findings, const Config& config) {
  const MoeConfig& moe = config.moe;
  if (config.parallel.placement != PlacementKind::pairs || moe.experts <= 0) return;
  if (!moe.expert_sizes.empty() && std::ssize(moe.expert_sizes) != moe.experts) return;  // reported already
  const auto check = [&](const char* key, std::int64_t parts) {
    if (parts < 1) return;
    for (const ExpertNumber& number : expert_numbers(config)) {
      std::vector<std::int64_t> widths = moe.expert_sizes;
      widths.resize(static_cast<std::size_t>(number.experts), moe.expert_hidden);
      const std::string problem = pairs_problem(widths, static_cast<int>(parts));
      findings.unless(problem.empty(),
                      "parallel.placement = pairs with {} = {}: {}; change one, or set "
                      "parallel.placement = cost",
                      key, parts, problem);
    }
  };
  check("parallel.expert", config.parallel.expert);
  if (config.balance.device_groups != config.parallel.expert) {
    check("balance.device_groups", config.balance.device_groups);
  }
}

/// Attention experts and sub-dimensions.
void check_mixtures(Findings& findings, const Config& config) {
  const AttentionExpertsConfig& experts = config.attention_experts;
  const bool mixture = config.model.attention == "moa";
  findings.unless(!mixture || experts.count != 0,
                  "model.attention = moa with no attention experts: set attention_experts.count");
  findings.unless(!mixture || experts.count <= 0 || experts.top_k <= experts.count,
                  "attention_experts.top_k = {} is more than attention_experts.count = {}", experts.top_k,
                  experts.count);
  findings.unless(mixture || experts.count == 0,
                  "attention_experts.count = {} without model.attention = moa: set one or the other", experts.count);
  const SubDimensionsConfig& parts = config.sub_dimensions;
  if (parts.attention <= 0 && parts.ffn <= 0) {
    findings.unless(!(config.balance.sub_dimension > 0),
                    "balance.sub_dimension = {} with no sub-dimensions to balance: set sub_dimensions.attention or "
                    "sub_dimensions.ffn, or 0",
                    config.balance.sub_dimension);
    return;
  }
  if (parts.attention > 0) {
    findings.unless(!config.model.qkv_bias,
                    "sub_dimensions.attention = {} with model.qkv_bias = true: set one or the other", parts.attention);
    findings.unless(config.model.qk_norm == QkNormKind::none,
                    "sub_dimensions.attention = {} with model.qk_norm = {}: set one or the other", parts.attention,
                    name_of(config.model.qk_norm));
  }
  findings.unless(!mixture || parts.attention <= 0,
                  "sub_dimensions.attention = {} with model.attention = moa: set one or the other", parts.attention);
  findings.unless(parts.shared < parts.active,
                  "sub_dimensions.shared = {} of sub_dimensions.active = {} leaves no piece to choose: lower it",
                  parts.shared, parts.active);
  const bool experts_too = config.moe.experts > 0 || config.moe.shared_experts > 0;
  findings.unless(
      !experts_too,
      "moe.experts = {} and moe.shared_experts = {} with sub_dimensions: an FFN is divided or has experts, set "
      "one or the other",
      config.moe.experts, config.moe.shared_experts);
  for (const auto& [key, count] :
       {std::pair{"sub_dimensions.attention", parts.attention}, std::pair{"sub_dimensions.ffn", parts.ffn}}) {
    if (count <= 0) continue;
    findings.unless(divides(count, config.model.hidden), "{} = {} does not divide model.hidden = {}", key, count,
                    config.model.hidden);
    findings.unless(parts.active <= count, "sub_dimensions.active = {} is more than {} = {}", parts.active, key, count);
  }
  findings.unless(parts.fusion_width <= 0 || divides(parts.fusion_width, config.model.hidden),
                  "sub_dimensions.fusion_width = {} does not divide model.hidden = {}", parts.fusion_width,
                  config.model.hidden);
}

bool fits_ranks(const Config& config, int world);

/// "1, 2 or 4"
std::string alternatives(const std::vector<std::int64_t>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 < values.size() ? ", " : " or ", values[i]);
  }
  return text;
}

/// The divisors of `number` that suit the ranks and the batch as the value of `member`: at most three, the nearest
/// ones.
template <class Value>
std::vector<std::int64_t> values_that_fit(Config config, int world, Value& (*member)(Config&), std::int64_t number) {
  constexpr std::size_t enough = 3;
  const std::int64_t own = member(config);
  std::vector<std::int64_t> divisors;
  for (std::int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    divisors.push_back(d);
    if (d * d < number) divisors.push_back(number / d);
  }
  std::ranges::sort(divisors, {}, [&](std::int64_t value) { return std::abs(value - own); });
  std::vector<std::int64_t> found;
  for (const std::int64_t value : divisors) {
    if (found.size() == enough) break;
    member(config) = static_cast<Value>(value);
    if (fits_ranks(config, world)) found.push_back(value);
  }
  std::ranges::sort(found);
  return found;
}

/// A number of ranks that forms this mesh and shares the batch, up to `world` if possible; 0 if there is none. What
/// does not suit the fewest ranks suits no multiple of them.
int ranks_that_fit(const Config& config, int world) {
  constexpr int tries = 1000;
  const std::int64_t fewest = fewest_ranks(config.parallel);
  if (fewest > 1 << 20 || !fits_ranks(config, static_cast<int>(fewest))) return 0;
  std::int64_t ranks = std::max<std::int64_t>(world / fewest, 1) * fewest;
  for (int i = 0; i < tries && ranks > fewest; ++i, ranks -= fewest) {
    if (fits_ranks(config, static_cast<int>(ranks))) return static_cast<int>(ranks);
  }
  return static_cast<int>(fewest);
}

/// Returns the remedies for ranks that do not form the mesh: ": start 2 ranks (mpirun -n 2), or set parallel.expert = 1
/// or 4".
template <class Value>
std::string ranks_advice(const Config& config, int world, const char* key, Value& (*member)(Config&)) {
  std::string text;
  const auto add = [&](const std::string& way) { text += (text.empty() ? ": " : ", or ") + way; };
  if (const int ranks = ranks_that_fit(config, world)) {
    add(fmt::format("start {0} {1} (mpirun -n {0})", ranks, ranks == 1 ? "rank" : "ranks"));
  }
  if (const auto values = values_that_fit(config, world, member, world); world > 1 && !values.empty()) {
    add(fmt::format("set {} = {}", key, alternatives(values)));
  }
  if (!text.empty()) return text;
  Config other = config;  // the batch does not suit any number of ranks
  const std::int64_t ranks = fewest_ranks(config.parallel), data = data_ranks(config.parallel, static_cast<int>(ranks));
  if (data == 0) return {};
  const std::int64_t unit = data * std::max<std::int64_t>(config.batch.micro, 1);
  other.batch.global = std::max<std::int64_t>((config.batch.global + unit / 2) / unit, 1) * unit;
  if (!fits_ranks(other, static_cast<int>(ranks))) return {};
  return fmt::format(": start {0} ranks (mpirun -n {0}) with batch.global = {1}", ranks, other.batch.global);
}

/// Sequences that batch.global must be a multiple of on so many data ranks.
std::int64_t batch_unit(const Config& config, std::int64_t data) {
  const bool groups = config.parallel.schedule == ScheduleKind::interleaved;
  const std::int64_t passes = groups ? std::max(config.parallel.pipeline, 1) : 1;
  return data * std::max<std::int64_t>(config.batch.micro, 1) * passes;
}

std::string batch_advice(Config config, int world) {
  const std::int64_t unit = batch_unit(config, data_ranks(config.parallel, world));
  config.batch.global = (config.batch.global / unit + 1) * unit;
  return fits_ranks(config, world) ? fmt::format(": set a multiple of {}", unit) : "";
}

void check_ranks_and_batch(Findings& findings, const Config& config, int world) {
  const ParallelConfig& parallel = config.parallel;
  const BatchConfig& batch = config.batch;
  const std::int64_t stages = std::max(parallel.pipeline, 1);
  const std::int64_t expert_ranks = std::int64_t{parallel.expert} * parallel.expert_tensor;
  const std::int64_t data = data_ranks(parallel, world);
  const auto advice = [&]<class Value>(bool fine, const char* key, Value& (*member)(Config&)) {
    return findings.advice(fine, [&] { return ranks_advice(config, world, key, member); });
  };
  const bool stages_fit = world % stages == 0;
  const bool split = data > 0 || parallel.pipeline < 1 || parallel.tensor < 1;
  findings.unless(split, "{} not split into parallel.pipeline = {} times parallel.tensor = {}{}",
                  world == 1 ? "1 rank does" : fmt::format("{} ranks do", world), parallel.pipeline, parallel.tensor,
                  stages_fit ? advice(
                                   split, "parallel.tensor", +[](Config& c) -> int& { return c.parallel.tensor; })
                             : advice(
                                   split, "parallel.pipeline", +[](Config& c) -> int& { return c.parallel.pipeline; }));
  const bool shared = !stages_fit || divides(expert_ranks, world / stages);
  findings.unless(shared, "parallel.expert = {} times parallel.expert_tensor = {} does not divide the {} of a stage{}",
                  parallel.expert, parallel.expert_tensor, count_text(world / stages, "rank"),
                  advice(
                      shared, "parallel.expert", +[](Config& c) -> int& { return c.parallel.expert; }));
  findings.unless(
      parallel.dispatch != DispatchKind::hierarchical || parallel.host_ranks == 0 || expert_hosts(parallel) > 1,
      "parallel.dispatch = hierarchical with {} of parallel.expert times parallel.expert_tensor, which do not "
      "fill several hosts of parallel.host_ranks = {} with more than one expert rank on each: set auto",
      count_text(expert_ranks, "rank"), parallel.host_ranks);
  if (data == 0) return;
  const bool divided = divides(data, batch.global);
  findings.unless(divided, "batch.global = {} cannot be divided among {} data-parallel ranks{}", batch.global, data,
                  findings.advice(divided, [&] { return batch_advice(config, world); }));
  const bool in_passes = !divided || divides(batch.micro, batch.global / data);
  const auto micro_advice = [&] {
    const auto values = values_that_fit(
        config, world, +[](Config& c) -> std::int64_t& { return c.batch.micro; }, batch.global / data);
    return values.empty() ? "" : fmt::format(": set batch.micro = {}", alternatives(values));
  };
  findings.unless(in_passes, "batch.micro = {} does not divide the {} sequences per rank of batch.global = {}{}",
                  batch.micro, batch.global / data, batch.global, findings.advice(in_passes, micro_advice));
}

/// That every stage has a block, and that the schedule can be.
void check_pipeline(Findings& findings, const Config& config, int world) {
  const ParallelConfig& parallel = config.parallel;
  const std::int64_t pipeline = parallel.pipeline, chunks = parallel.virtual_stages;
  findings.unless(pipeline <= 0 || chunks <= 0 || config.model.layers <= 0 || pipeline * chunks <= config.model.layers,
                  "parallel.pipeline = {} times parallel.virtual_stages = {} is more than model.layers = {}: a stage "
                  "would have no block",
                  pipeline, chunks, config.model.layers);
  if (parallel.schedule != ScheduleKind::interleaved) {
    findings.unless(chunks <= 1,
                    "parallel.virtual_stages = {} with parallel.schedule = {}: set {}parallel.virtual_stages = 1",
                    chunks, name_of(parallel.schedule), pipeline > 1 ? "parallel.schedule = interleaved, or " : "");
    return;
  }
  findings.unless(pipeline >= 2 && chunks >= 2,
                  "parallel.schedule = interleaved with parallel.pipeline = {} and parallel.virtual_stages = {}: both "
                  "must be 2 or more, or set parallel.schedule = 1f1b and parallel.virtual_stages = 1",
                  pipeline, chunks);
  const std::optional<RankBatch> batch = rank_batch(config, world);
  if (!batch) return;
  const auto [share, micro] = *batch;
  findings.unless(micro == 0 || share % micro != 0 || divides(pipeline, share / micro),
                  "parallel.schedule = interleaved takes micro-batches in groups of parallel.pipeline = {}, which does "
                  "not divide the {} of a step: change batch.global or batch.micro",
                  pipeline, micro > 0 ? share / micro : 0);
}

/// That there are two micro-batches to run side by side, and that the layers which both are in can be here at once.
void check_overlap(Findings& findings, const Config& config, int world) {
  const ParallelConfig& parallel = config.parallel;
  if (!overlaps_batches(parallel)) return;
  findings.unless(parallel.pipeline <= 1,
                  "parallel.overlap = batches with parallel.pipeline = {}, which has a schedule of micro-batches "
                  "already: set parallel.overlap = shared, or parallel.pipeline = 1",
                  parallel.pipeline);
  findings.unless(parallel.schedule == ScheduleKind::one_forward_one_backward || parallel.pipeline > 1,
                  "parallel.overlap = batches with parallel.schedule = {}: set parallel.schedule = 1f1b",
                  name_of(parallel.schedule));
  findings.unless(parallel.zero <= 2,
                  "parallel.overlap = batches with parallel.zero = {}, which has the weights of only two layers on a "
                  "rank at a time: set parallel.zero = 2, or parallel.overlap = shared",
                  parallel.zero);
  const std::optional<RankBatch> batch = rank_batch(config, world);
  if (!batch) return;
  const auto [share, micro] = *batch;
  findings.unless(share != micro,
                  "parallel.overlap = batches with one micro-batch of {} per step, which has no other to run beside "
                  "it: set a smaller batch.micro, or parallel.overlap = shared",
                  count_text(micro, "sequence"));
}

/// True if `world` ranks form the mesh and share the batch, and every rank has experts.
bool fits_ranks(const Config& config, int world) {
  Findings findings(false);
  check_ranks_and_batch(findings, config, world);
  check_pipeline(findings, config, world);
  check_overlap(findings, config, world);
  if (config.moe.experts > 0) {
    for (const ExpertNumber& layer : expert_numbers(config)) {
      findings.unless(config.parallel.expert <= layer.experts, "a rank without experts");
    }
  } else {
    findings.unless(config.parallel.expert <= 1, "ranks without experts");
  }
  findings.unless(divides(config.parallel.tensor, config.model.heads), "heads that are not divided");
  return findings.take().empty();
}

/// That every rank of a tensor group gets its equal share of the heads, and some of every width.
void check_tensor(Findings& findings, const Config& config) {
  const std::int64_t tensor = config.parallel.tensor, expert_tensor = config.parallel.expert_tensor;
  const ModelConfig& model = config.model;
  const MoeConfig& moe = config.moe;
  findings.unless(divides(tensor, model.heads), "parallel.tensor = {} does not divide model.heads = {}", tensor,
                  model.heads);
  findings.unless(model.kv_heads == 0 || model.kv_heads == model.heads || divides(tensor, model.kv_heads),
                  "parallel.tensor = {} does not divide model.kv_heads = {}", tensor, model.kv_heads);
  const auto check_width = [&](const char* axis, std::int64_t ranks, const char* key, std::int64_t width) {
    findings.unless(width <= 0 || ranks <= width, "{} = {} is more than {} = {}: a rank would hold none of it", axis,
                    ranks, key, width);
  };
  check_width("parallel.tensor", tensor, "model.vocab", model.vocab);
  check_width("parallel.tensor", tensor, "model.ffn_hidden", model.ffn_hidden);
  if (moe.shared_experts > 0 && moe.expert_hidden > 0) {
    check_width("parallel.tensor", tensor, "moe.shared_experts times moe.expert_hidden",
                moe.shared_experts * moe.expert_hidden);
  }
  if (moe.experts <= 0) {
    findings.unless(expert_tensor <= 1,
                    "parallel.expert_tensor = {} with no experts to split: set parallel.expert_tensor = 1, or "
                    "moe.experts",
                    expert_tensor);
    return;
  }
  if (moe.expert_sizes.empty()) {
    check_width("parallel.expert_tensor", expert_tensor, "moe.expert_hidden", moe.expert_hidden);
  } else {
    check_width("parallel.expert_tensor", expert_tensor, "the smallest of moe.expert_sizes",
                *std::min_element(moe.expert_sizes.begin(), moe.expert_sizes.end()));
  }
}

void check_training(Findings& findings, const Config& config) {
  findings.unless(!(config.optim.min_lr > config.optim.lr), "optim.min_lr = {} is above optim.lr = {}",
                  config.optim.min_lr, config.optim.lr);
  const OptimConfig& optim = config.optim;
  if (optim.router_penalty > 0) {
    const RouterKind router = config.moe.router;
    const bool by_kind = choices_of(config.moe) > 0 || config.attention_experts.count > 0;
    findings.unless(!by_kind || (router != RouterKind::hash && router != RouterKind::random),
                    "optim.router_penalty = {} with moe.router = {}, which trains no matrix", optim.router_penalty,
                    name_of(router));
    const SubDimensionsConfig& parts = config.sub_dimensions;
    const std::int64_t rows =
        std::max({choices_of(config.moe), config.attention_experts.count, parts.attention, parts.ffn});
    findings.unless(rows > 0, "optim.router_penalty = {} with no experts to choose from: set moe.experts, or 0",
                    optim.router_penalty);
    findings.unless(rows <= 0 || optim.router_penalty_from < rows,
                    "optim.router_penalty_from = {}: routers have {} rows, counted from 0", optim.router_penalty_from,
                    rows);
  } else {
    findings.unless(optim.router_penalty_from == 0,
                    "optim.router_penalty_from = {} has no effect without optim.router_penalty",
                    optim.router_penalty_from);
  }
  findings.unless(
      config.eval.every <= 0 || !config.data.valid.empty() || config.data.valid_fraction > 0,
      "eval.every = {} with no data to validate on: set data.valid or data.valid_fraction, or eval.every = 0",
      config.eval.every);
  findings.unless(config.run.prometheus.empty() || config.run.prometheus.ends_with(".prom"),
                  "run.prometheus = {}: the name must end with .prom, since node_exporter reads only such files",
                  config.run.prometheus);
  findings.unless(config.run.gemm_file.empty() || config.run.gemm_choice == "timed",
                  "run.gemm_file = {} has no effect without run.gemm_choice = timed", config.run.gemm_file);
}

}  // namespace

std::vector<std::string> contradictions(const Config& config, int world) {
  require(world >= 1, "a configuration checked for {} ranks", world);
  Findings findings;
  check_ranges(findings, config);
  check_model(findings, config.model);
  check_size(findings, config);
  check_moe(findings, config);
  check_router(findings, config);
  check_mixtures(findings, config);
  check_pairs(findings, config);
  check_ranks_and_batch(findings, config, world);
  check_pipeline(findings, config, world);
  check_overlap(findings, config, world);
  check_tensor(findings, config);
  check_training(findings, config);
  return findings.take();
}

std::vector<std::string> problems(const Config& config, int world) {
  std::vector<std::string> found = contradictions(config, world);
  Findings missing;
  check_device(missing, config);
  std::ranges::move(missing.take(), std::back_inserter(found));
  return found;
}

void resolve(Config& config, int world) {
  require(world >= 1, "a configuration resolved for {} ranks", world);
  const auto derive = [](std::int64_t& value, std::int64_t derived) {
    if (value == 0) value = derived;
  };
  ModelConfig& model = config.model;
  derive(model.kv_heads, model.heads);
  if (model.heads > 0 && model.hidden % model.heads == 0) derive(model.head_dim, model.hidden / model.heads);
  derive(model.ffn_hidden, (16 * model.hidden + 3) / 6);  // 8/3 hidden to the nearest integer: 1280 → 3413
  if (const std::optional<RankBatch> batch = rank_batch(config, world)) derive(config.batch.micro, batch->share);
  if (config.moe.group_limit == 0) derive(config.balance.device_groups, config.parallel.expert);
  config.moe.gates = gates_of(config.moe);
  if (model.attention == "moa") config.attention_experts.gates = attention_gates_of(config);
  if (config.run.device == "auto") config.run.device = gpu_count() > 0 ? "cuda" : "cpu";
}

void require_none(std::span<const std::string> problems) {
  if (problems.empty()) return;
  if (problems.size() == 1) fail(ExitCode::usage, "{}", printable(problems.front()));
  std::string text = fmt::format("{} mistakes in the configuration:", problems.size());
  for (const std::string& problem : problems.first(std::min(problems.size(), most_told))) {
    text += "\n  " + printable(problem);
  }
  if (problems.size() > most_told) text += fmt::format("\n  … and {} more", problems.size() - most_told);
  fail(ExitCode::usage, "{}", text);
}

}  // namespace lyceum
