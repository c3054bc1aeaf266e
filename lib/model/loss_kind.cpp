#include "model/loss_kind.h"

#include <algorithm>

#include "core/error.h"
#include "model/routing/balance_loss.h"
#include "model/routing/mixture.h"

namespace lyceum {

std::string name_of(LossKind kind) {
  switch (kind) {
    case LossKind::expert_balance: return "expert_balance";
    case LossKind::device_balance: return "device_balance";
    case LossKind::z: return "z";
    case LossKind::mutual_information: return "mutual_information";
    case LossKind::concentration: return "concentration";
    case LossKind::sub_dimension: return "sub_dimension";
    case LossKind::router_penalty: return "router_penalty";
    case LossKind::dropout: return "dropout";
    case LossKind::mtp: return "mtp";
    case LossKind::head_z: return "head_z";
    case LossKind::consistency: return "consistency";
  }
  fail(ExitCode::failed, "unknown kind of loss {}", static_cast<int>(kind));
}

namespace {

/// Returns the kinds of losses of routers.
std::vector<LossKind> routing_losses(const Config& config) {
  bool routes = false;
  for (std::int64_t layer = config.model.layers; layer-- > 0 && !routes;) routes = !mixtures_of(config, layer).empty();
  if (!routes) return {};
  std::vector<LossKind> kinds;
  if (has_balance_losses(config.balance)) kinds = {LossKind::expert_balance, LossKind::device_balance};
  if (config.balance.z_loss > 0) kinds.push_back(LossKind::z);
  if (config.balance.mutual_information > 0) kinds.push_back(LossKind::mutual_information);
  if (config.balance.concentration > 0) kinds.push_back(LossKind::concentration);
  if (config.balance.sub_dimension > 0) kinds.push_back(LossKind::sub_dimension);
  if (config.optim.router_penalty > 0) kinds.push_back(LossKind::router_penalty);
  return kinds;
}

}  // namespace

std::vector<LossKind> loss_kinds(const Config& config) {
  std::vector<LossKind> kinds = routing_losses(config);
  if (learns_rates(config.model.dropout)) kinds.push_back(LossKind::dropout);
  if (config.mtp.depth > 0) kinds.push_back(LossKind::mtp);
  if (config.model.z_loss > 0) kinds.push_back(LossKind::head_z);
  if (config.model.consistency > 0) kinds.push_back(LossKind::consistency);
  return kinds;
}

std::int64_t LossTable::index(LossKind kind, std::int64_t layer) const {
  const auto at = std::ranges::find(kinds_, kind);
  require(at != kinds_.end() && layer >= 0 && layer < layers_, "layer {} has an unexpected loss {}", layer,
          name_of(kind));
  return (at - kinds_.begin()) * layers_ + layer;
}

}  // namespace lyceum
