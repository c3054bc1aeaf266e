#pragma once

#include "parallel/pipeline/schedule.h"

namespace lyceum {

/// Throws an Error that names the wrong action and shows the programs around it, unless
///   every rank runs each of its stages for every micro-batch once: forward, then backward, or its two halves; in a
///   schedule without any backward pass forward alone;
///   weight gradients of a stage come in the order of micro-batches, so that they are summed as without a pipeline;
///   sends, if there are any, follow what makes them, receives come before what needs them, all between stages on
///   different ranks have both, and any two ranks agree on the order of what passes between them;
///   no rank waits for ever;
///   no rank holds more than `most_in_flight` micro-batches, counted for each of its stages; 0 for any number.
void check_schedule(const Schedule& schedule, int most_in_flight = 0);

}  // namespace lyceum
