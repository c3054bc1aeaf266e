#include "plan/zero_states.h"

#include <algorithm>
#include <set>
#include <utility>

namespace lyceum {

namespace {

/// Follows values: those of the layer in use and of the next one in the direction of the pass are gathered.
class Values {
 public:
  Values(const std::map<int, LayerBytes>& layers, ZeroStates& states) : layers_(layers), states_(states) {}

  void use(const LayerUse& use, bool early) {
    if (use.layer == layer_ && use.backward == backward_) return;
    layer_ = use.layer;
    backward_ = use.backward;
    const int next = use.backward ? use.layer - 1 : use.layer + 1;
    std::erase_if(whole_, [&](int layer) { return layer != use.layer && layer != next; });
    gather(use.layer);
    if (layers_.contains(next)) gather(next);
    double bytes = 0;
    for (const int layer : whole_) bytes += layers_.at(layer).values;
    states_.values = std::max(states_.values, bytes);
    if (early) states_.early_values = std::max(states_.early_values, bytes);
  }

 private:
  void gather(int layer) {
    if (whole_.insert(layer).second) ++states_.gathers[layer];
  }
  const std::map<int, LayerBytes>& layers_;
  ZeroStates& states_;
  std::set<int> whole_;
  int layer_ = -1;
  bool backward_ = false;
};

}  // namespace

ZeroStates simulate_zero(const std::map<int, LayerBytes>& layers, std::span<const LayerUse> uses, int held) {
  ZeroStates states;
  Values values(layers, states);
  const int last = layers.empty() ? 0 : layers.rbegin()->first;
  int before = -1, now = -1;  // layers whose gradients are unsharded
  for (const LayerUse& use : uses) {
    const bool early = use.backward && use.layer + 1 >= last;
    values.use(use, early);
    if (!use.backward || use.layer == now) continue;
    before = std::exchange(now, use.layer);
    double bytes = layers.at(now).gradients + (before >= 0 ? layers.at(before).gradients : 0);
    if (held >= 0 && now != held && before != held) bytes += layers.at(held).gradients;
    states.gradients = std::max(states.gradients, bytes);
    if (early) states.early_gradients = std::max(states.early_gradients, bytes);
  }
  return states;
}

}  // namespace lyceum
