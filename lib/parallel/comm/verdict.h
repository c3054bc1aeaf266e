#pragma once

#include <span>
#include <string>

#include "parallel/comm/ledger.h"

namespace lyceum {

/// Returns the reason why rank `asker` waits without success, in one line without a full stop: two ranks that called
/// different operations at the same index of a group's sequence, or the rank that blocks others, found by following
/// which rank waits for which. Empty if the pages do not show the reason. `pages`, `hosts`: by rank of the job; an
/// unknown page has rank -1.
std::string verdict(std::span<const LedgerPage> pages, std::span<const std::string> hosts, int asker);

/// Returns e.g. "0-3,7".
std::string rank_ranges(std::span<const int> ranks);

}  // namespace lyceum
