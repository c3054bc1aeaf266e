#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "config/config.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "model/routing/mixture.h"

namespace lyceum {

/// The sums of a step's loads so far, for balance.scope = global. Each pass has its own sums: those of the previous
/// pass plus its own, over all data ranks. So a pass that is computed again, for recomputation or because the step is
/// repeated, writes the same numbers, even if later passes have begun. The first time, the passes of a stage must run
/// in ascending order, as they do in every schedule.
class RunningLoads {
 public:
  /// Selects the sums for the losses of a mixture's router, or those for its balance loss of sub-dimensions.
  enum class Of { router, sub_dimension };

  /// Allocates the sums of `mixtures`, which are those of this rank, for `passes` passes per step.
  RunningLoads(const Stream& stream, const Config& config, std::span<const Mixture> mixtures, std::int64_t passes);
  /// Returns the bytes that the constructor allocates.
  static std::int64_t bytes(const Config& config, std::span<const Mixture> mixtures, std::int64_t passes);

  /// The sums of one pass and of all passes before it, f64 [n + 1]: n sums of the columns of a table of loads, and the
  /// number of its rows (sequences). `before` is undefined for the first pass.
  struct Sums {
    Tensor now{}, before{};

    /// Sets `now` to before + own. Returns `now`.
    Tensor add(const Stream& stream, const Tensor& own) const;
  };
  /// Returns the sums of pass `pass`. Throws an Error if the mixture is not among those of the constructor.
  Sums at(const MixtureId& id, Of of, std::int64_t pass) const;

 private:
  std::map<MixtureId, Range> routers_, sub_dimensions_;  // columns of sums_
  Tensor sums_;                                          // f64 [passes, columns]
};

}  // namespace lyceum
