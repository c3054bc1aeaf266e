#pragma once

#include <span>

#include "parallel/comm/ledger.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Collective over `world`, all ranks of the job: throws, on all ranks the same Error, unless what they are going to
/// call fits together. On every group all members must call the same operations with the same sizes in one order, and
/// the k-th message from one rank to another must be received as the k-th from there, with its size.
/// `own`: this rank's operations on all groups in the order of its calls, as a rehearsal's ledger hears them.
void require_matching(const ProcessGroup& world, std::span<const LedgerEntry> own);

}  // namespace lyceum
