#pragma once

#include "parallel/pipeline/schedule.h"

namespace lyceum {

/// `computing`, which has no sends and receives, with those between stages on different ranks; stages on one rank pass
/// by memory.
///
/// A send follows the action that makes what it sends and does not wait. A receive allocates memory one computing
/// action before the one that needs it, or earlier, so that messages between two ranks are received in the order in
/// which they are sent (a transport without tags will do). Only computing actions wait, each for one message whose
/// receive is under way: so what had no deadlock before has none after.
Schedule with_transfers(const Schedule& computing);

}  // namespace lyceum
