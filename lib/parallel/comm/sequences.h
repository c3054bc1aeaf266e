#pragma once

#include <span>

#include "parallel/comm/ledger.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Collective over `world`, all ranks of the job. Verifies that the operations that the ranks are going to call match;
/// otherwise throws the same Error on all ranks. In every group, all members must call the same operations with the
/// same sizes in the same order. The k-th message from one rank to another must have a k-th receive of the same size.
/// `own`: this rank's operations on all groups in the order of its calls, as recorded by the listener of a rehearsal's
/// ledger.
void require_matching(const ProcessGroup& world, std::span<const LedgerEntry> own);

}  // namespace lyceum
