#pragma once

#include <span>
#include <string>

#include "parallel/comm/ledger.h"

namespace lyceum {

/// Why `asker` waits in vain, in one line without an end: which ranks called different operations at the same place of
/// a group's sequence, or which rank, by following who waits for whom, holds up the others. Empty when the pages do not
/// tell.
/// `pages`, `hosts`: by rank of the job; the rank of a page that is not known is −1.
std::string verdict(std::span<const LedgerPage> pages, std::span<const std::string> hosts, int asker);

/// "0-3,7"
std::string rank_ranges(std::span<const int> ranks);

}  // namespace lyceum
