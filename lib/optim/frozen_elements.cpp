#include "optim/frozen_elements.h"

#include "kernels/tensor_kernels.h"

namespace lyceum {

FrozenElements::FrozenElements(std::span<const UpdatedShare> shares) {
  for (std::size_t s = 0; s < shares.size(); ++s) {
    const UnitShare& share = shares[s].share;
    for (std::size_t p = 0; p < share.unit->parameters().size(); ++p) {
      for (const Range& frozen : share.unit->parameters()[p]->frozen) {
        const Range part = common({share.unit->first_of(p) + frozen.first, frozen.count}, share.updated);
        if (part.count > 0) parts_.push_back({s, {part.first - share.updated.first, part.count}});
      }
    }
  }
}

void FrozenElements::clear_gradients(const Stream& stream, std::span<const UpdatedShare> shares) const {
  for (const auto& [share, range] : parts_)
    clear(stream, shares[share].share.gradients.slice(range.first, range.count));
}

void FrozenElements::clear_states(const Stream& stream, std::span<const UpdatedShare> shares) const {
  for (const auto& [share, range] : parts_) {
    const std::int64_t begin = shares[share].share.updated.first + range.first;  // in the unit
    for (const UpdatedShare::Part& part : shares[share].parts) {
      const Range both = common({begin, range.count}, part.range);
      if (both.count == 0) continue;
      for (const Tensor& state : part.states) clear(stream, state.slice(both.first - part.range.first, both.count));
    }
  }
}

}  // namespace lyceum
