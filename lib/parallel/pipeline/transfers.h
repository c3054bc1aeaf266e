#pragma once

#include "parallel/pipeline/schedule.h"

namespace lyceum {

/// Returns `computing`, a schedule without sends and receives, with those between stages on different ranks added.
/// Stages on one rank pass data in memory.
///
/// A send directly follows the action that produces its data, and does not wait. A receive allocates its memory one
/// computing action before the one that needs the data, or earlier if necessary: messages between two ranks must be
/// received in the order in which they are sent, since a transport may not have tags. Only computing actions wait, each
/// for one message whose receive has been started. So the transfers cannot add a deadlock.
Schedule with_transfers(const Schedule& computing);

}  // namespace lyceum
