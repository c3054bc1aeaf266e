#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/host_device.h"

namespace lyceum {

/// Selects the factors of QkClipFactors that multiply the elements of a span after its update. Each head of keys has
/// `period` adjacent elements. The first `split` elements of a head are multiplied by √γ of the head, the others as
/// `rest` says.
struct HeadScaling {
  enum class Rest : std::int32_t { unchanged, squared };  // factor of the other elements: 1, or γ

  std::int64_t begin = 0;   // element of the tensor at which the first head begins; may be negative
  std::int64_t period = 0;  // 0: the elements belong to no heads and are not scaled
  std::int64_t split = 0;
  std::int32_t first_head = 0;  // index of the first head in the factors
  Rest rest = Rest::unchanged;

  bool operator==(const HeadScaling&) const = default;
};

/// A part of a span whose elements have one factor.
struct ScaledPart {
  std::int64_t end;  // first element after the part
  double factor;
};
/// Returns the part that begins at element i < last and ends at `last` or before it. `factors`: see QkClipFactors.
LYCEUM_HOST_DEVICE ScaledPart scaled_part(const HeadScaling& heads, std::span<const double> factors, std::int64_t i,
                                          std::int64_t last) {
  if (heads.period == 0) return {last, 1};
  const std::int64_t head = (i - heads.begin) / heads.period, first = heads.begin + head * heads.period;
  const auto index = static_cast<std::size_t>(heads.first_head + head);
  const bool front = i - first < heads.split;
  const std::int64_t end = first + (front ? heads.split : heads.period);
  const double factor = front                                      ? factors[index]
                        : heads.rest == HeadScaling::Rest::squared ? factors[factors.size() / 2 + index]
                                                                   : 1;
  return {end < last ? end : last, factor};
}

}  // namespace lyceum
