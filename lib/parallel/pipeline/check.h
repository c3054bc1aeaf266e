#pragma once

#include "parallel/pipeline/schedule.h"

namespace lyceum {

/// Throws an Error that names the wrong action and shows the programs around it, unless all of these hold:
/// - Every rank runs each of its stages once per micro-batch: forward, then backward, or its two halves I and W. A
///   schedule without any backward pass has only forward passes.
/// - The weight gradients of a stage are added in the order of micro-batches, so that sums are those of a single rank.
/// - If there are sends, each follows the action that produces its data, and each receive precedes the action that
///   needs its data. Data between stages on different ranks has both. Any two ranks agree on the order of their
///   messages.
/// - No rank waits forever.
/// - No rank keeps the activations of more than `most_in_flight` micro-batches at a time, see peak_in_flight();
///   0: unlimited.
void check_schedule(const Schedule& schedule, int most_in_flight = 0);

}  // namespace lyceum
