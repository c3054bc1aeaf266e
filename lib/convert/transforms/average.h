#pragma once

#include <span>
#include <vector>

#include "convert/transforms/conversion.h"

namespace lyceum {

/// Throws a usage Error that names the first difference unless all checkpoints have the same model and tokenizer.
/// `configs`: the resolved configurations of the checkpoints, in the same order.
void require_same_model(std::span<const CheckpointReader> sources, std::span<const Config> configs);

/// Returns the mean of the weights of checkpoints as a new run: x = Σ wᵢ xᵢ / Σ wᵢ for each element, summed in double
/// and rounded once [Izmailov et al. 2018; Wortsman et al. 2022]. `conversion`: the result of the transform reset of
/// the first checkpoint. `weights`: the factors wᵢ, whose sum must not be 0. Everything but the weights is that of the
/// first checkpoint. The run refers to `sources`, which must outlive it.
NewRun averaged_run(const Conversion& conversion, std::span<const CheckpointReader> sources,
                    const std::vector<double>& weights);

}  // namespace lyceum
