#include "config/router_penalty.h"

#include <algorithm>
#include <tuple>

#include "config/config.h"
#include "config/findings.h"

namespace lyceum {

namespace {

/// Returns the largest number of experts that a router of this half chooses from.
std::int64_t most_choices(const Config& config, Site site) {
  if (site == Site::attention) return most_attention_experts(config);
  std::int64_t most = 0;
  for (const ExpertNumber& layer : expert_numbers(config)) most = std::max(most, layer.choices);
  return most;
}

}  // namespace

std::int64_t router_rows(const Config& config, Site site) {
  const SubDimensionsConfig& parts = config.sub_dimensions;
  const std::int64_t divided = site == Site::attention ? parts.attention : parts.ffn;
  return std::max(most_choices(config, site), chooses_sub_dimensions(parts) ? divided : 0);
}

std::int64_t first_penalised_row(const OptimConfig& optim, Site site) {
  const bool own = site == Site::attention && optim.router_penalty_from_attention >= 0;
  return own ? optim.router_penalty_from_attention : optim.router_penalty_from;
}

void check_router_penalty(Findings& findings, const Config& config) {
  const OptimConfig& optim = config.optim;
  const std::int64_t of_ffn = optim.router_penalty_from, of_attention = optim.router_penalty_from_attention;
  if (!(optim.router_penalty > 0)) {
    findings.unless(of_ffn == 0, "optim.router_penalty_from = {} has no effect without optim.router_penalty", of_ffn);
    findings.unless(of_attention < 0,
                    "optim.router_penalty_from_attention = {} has no effect without optim.router_penalty",
                    of_attention);
    return;
  }
  const RouterKind router = config.moe.router;
  const bool experts = most_choices(config, Site::ffn) > 0 || most_choices(config, Site::attention) > 0;
  findings.unless(!experts || (has_scores(router) && router != RouterKind::random),
                  "optim.router_penalty = {} with moe.router = {}, which trains no matrix", optim.router_penalty,
                  name_of(router));
  const std::int64_t ffn = router_rows(config, Site::ffn), attention = router_rows(config, Site::attention);
  if (std::max(ffn, attention) == 0) {
    findings.unless_zero("optim.router_penalty", optim.router_penalty, "with no router that chooses",
                         ", or moe.experts");
    return;
  }
  if (of_attention < 0) {  // one key for both halves
    findings.unless(of_ffn < std::max(ffn, attention),
                    "optim.router_penalty_from = {}: routers have {} rows, counted from 0", of_ffn,
                    std::max(ffn, attention));
    return;
  }
  findings.unless(attention > 0, "optim.router_penalty_from_attention = {} with no router in attention: set it to -1",
                  of_attention);
  if (attention == 0) return;
  for (const auto& [key, first, half, rows] :
       {std::tuple{"optim.router_penalty_from", of_ffn, "FFNs", ffn},
        std::tuple{"optim.router_penalty_from_attention", of_attention, "attention", attention}}) {
    findings.unless(first <= rows, "{0} = {1}: routers of {2} have {3} rows: set {3} to penalise none of them", key,
                    first, half, rows);
  }
  findings.unless(of_ffn != ffn || of_attention != attention,
                  "optim.router_penalty_from = {} and optim.router_penalty_from_attention = {}: routers have as many "
                  "rows, so that none is penalised: lower one of them, or set optim.router_penalty = 0",
                  of_ffn, of_attention);
}

}  // namespace lyceum
