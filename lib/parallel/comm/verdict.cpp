#include "parallel/comm/verdict.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "parallel/comm/process_state.h"

namespace lyceum {
namespace {

using Pages = std::span<const LedgerPage>;
using Hosts = std::span<const std::string>;

template <class... Args>
std::string text(std::string_view format, const Args&... args) {
  return format_message(format, {args...});
}

const LedgerPage& page_of(Pages pages, int rank) { return pages[static_cast<std::size_t>(rank)]; }
double tenths(double seconds) { return std::round(seconds * 10) / 10; }
bool known(const LedgerPage& page) { return page.rank >= 0; }
bool stopped(const LedgerPage& page) { return page.state == 'T' || page.state == 't'; }
bool gone(const LedgerPage& page) { return is_gone(page.state); }
bool does_not_wait(const LedgerPage& page) { return !known(page) || stopped(page) || gone(page) || !page.waiting(); }

std::string ranks_text(std::span<const int> ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + rank_ranges(ranks);
}

std::string_view state_text(const LedgerPage& page) {
  if (stopped(page)) return "is stopped";
  if (gone(page)) return "is gone";
  if (page.state == 'D') return "waits for a disk or a device";
  if (page.state == '?') return "cannot be inspected";
  return page.waiting() ? "waits" : "is not waiting for others";
}

/// Returns e.g. "rank 3 on node7 (process 4711 is stopped)".
std::string name_of(Pages pages, Hosts hosts, int rank) {
  const LedgerPage& page = page_of(pages, rank);
  const std::string& host = hosts[static_cast<std::size_t>(rank)];
  if (!known(page)) return text("rank {} on {} (does not respond)", rank, host);
  return text("rank {} on {} (process {} {})", rank, host, page.process, std::string(state_text(page)));
}

/// Returns e.g. "; its last operation: reduce_scatter #40 of …, finished 31 s ago".
std::string last_operation_text(const LedgerPage& page) {
  const LedgerEntry* last = known(page) ? page.entry(page.noted - 1) : nullptr;
  if (!last) return "";
  const bool done = last->finished > 0;
  return text("; its last operation: {}, {} {} s ago", last->text(), done ? "finished" : "started but not finished",
              tenths(page.copied - (done ? last->finished : last->started)));
}

/// Returns the key that two ranks' entries share if they belong to the same operation.
auto key_of(const LedgerEntry& entry) { return std::tuple(entry.group, entry.index, entry.from, entry.to); }

/// Describes the oldest pair of entries with the same key that do not fit each other.
std::optional<std::string> divergence(Pages pages) {
  struct First {
    int rank;
    const LedgerEntry* entry;
  };
  std::map<decltype(key_of(LedgerEntry{})), First> first;
  std::optional<std::string> found;
  double longest = -1;
  for (const LedgerPage& page : pages) {
    if (!known(page)) continue;
    for (std::int64_t number = page.noted; number-- > 0 && page.entry(number);) {
      const LedgerEntry& entry = *page.entry(number);
      const auto [there, added] = first.try_emplace(key_of(entry), First{page.rank, &entry});
      if (added || entry.fits(*there->second.entry)) continue;
      const double age = page.copied - entry.started;
      if (!(age > longest)) continue;
      longest = age;
      found = text("ranks {} and {} diverge: rank {} called {}, rank {} called {}", there->second.rank, page.rank,
                   there->second.rank, there->second.entry->text(), page.rank, entry.text());
    }
  }
  return found;
}

/// The members of an operation, by whether they have started it: ranks of the job, and the number of members whose
/// pages are unknown.
struct Members {
  std::vector<int> entered, missing;
  int unknown = 0;
};

Members members_of(Pages pages, const LedgerEntry& entry) {
  Members members;
  for (const LedgerPage& page : pages) {
    if (!known(page)) continue;
    if (entry.message()) {
      if (page.rank != entry.from && page.rank != entry.to) continue;
      (page.counterpart(entry) ? members.entered : members.missing).push_back(page.rank);
    } else if (const std::int64_t started = page.started(entry.group); started >= 0) {
      (started > entry.index ? members.entered : members.missing).push_back(page.rank);
    }
  }
  const int all = entry.message() ? 2 : entry.members;
  members.unknown = std::max(0, all - static_cast<int>(members.entered.size() + members.missing.size()));
  return members;
}

/// Returns the rank that best explains a standstill: a stopped or dead one, else one that does not wait, else the
/// first.
int likeliest_cause(Pages pages, std::span<const int> ranks) {
  const auto dead = std::ranges::find_if(
      ranks, [&](int rank) { return stopped(page_of(pages, rank)) || gone(page_of(pages, rank)); });
  if (dead != ranks.end()) return *dead;
  const auto free = std::ranges::find_if(ranks, [&](int rank) { return does_not_wait(page_of(pages, rank)); });
  return free != ranks.end() ? *free : ranks.front();
}

/// Returns the members that have entered the operation but block others: those that have not finished and do not wait
/// for it, and stopped or dead ones, which no longer move data even if they have finished their own part.
std::vector<int> blocking_members(Pages pages, const LedgerEntry& entry, std::span<const int> entered) {
  std::vector<int> ranks;
  for (const int rank : entered) {
    const LedgerPage& page = page_of(pages, rank);
    const LedgerEntry *own = page.counterpart(entry), *waits = page.waiting();
    const bool busy = own && own->finished == 0 && !(waits && key_of(*waits) == key_of(entry));
    if (busy || stopped(page) || gone(page)) ranks.push_back(rank);
  }
  return ranks;
}

std::string unanswered_text(Pages pages, Hosts hosts, const LedgerEntry& entry, const Members& members) {
  std::vector<int> silent;
  for (std::size_t rank = 0; rank < pages.size(); ++rank) {
    if (!known(pages[rank])) silent.push_back(static_cast<int>(rank));
  }
  const auto all = static_cast<int>(members.entered.size() + members.missing.size()) + members.unknown;
  return text("{} of the {} ranks of {}, which {} entered, did not answer: no response from {} (on {})",
              members.unknown, all, entry.text(), ranks_text(members.entered), ranks_text(silent),
              hosts[static_cast<std::size_t>(silent.front())]);
}

std::string culprit_text(Pages pages, Hosts hosts, int rank, const LedgerEntry& entry, const Members& members) {
  const bool missing = std::ranges::find(members.missing, rank) != members.missing.end();
  double longest = 0;
  for (const int other : members.entered) {
    const LedgerPage& page = page_of(pages, other);
    if (const LedgerEntry* own = page.counterpart(entry); own && other != rank) {
      longest = std::max(longest, page.copied - own->started);
    }
  }
  std::vector<int> others = members.entered;
  std::erase(others, rank);
  return text("{} {} {}, which {} entered {} s ago{}", name_of(pages, hosts, rank),
              missing ? "has not entered" : "has not finished", entry.text(), ranks_text(others), tenths(longest),
              last_operation_text(page_of(pages, rank)));
}

std::string circle_text(Pages pages, std::span<const int> ranks) {
  std::string line = ranks_text(ranks) + " wait for each other:";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    line += text("{} rank {} in {}", i ? "," : "", ranks[i], page_of(pages, ranks[i]).waiting()->text());
  }
  return line;
}

}  // namespace

std::string rank_ranges(std::span<const int> ranks) {
  std::string line;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    line += text(end - i > 1 ? "{}{}-{}" : "{}{}", line.empty() ? "" : ",", ranks[i], ranks[end - 1]);
    i = end;
  }
  return line;
}

std::string verdict(Pages pages, Hosts hosts, int asker) {
  if (const auto parted = divergence(pages)) return *parted;
  std::vector<int> path;
  for (int rank = asker;;) {
    const LedgerEntry* waits = page_of(pages, rank).waiting();
    if (!waits) return "";
    path.push_back(rank);
    const Members members = members_of(pages, *waits);
    if (members.missing.empty() && members.unknown) return unanswered_text(pages, hosts, *waits, members);
    const std::vector<int> late =
        members.missing.empty() ? blocking_members(pages, *waits, members.entered) : members.missing;
    if (late.empty()) return text("all ranks entered {}, but none makes progress: check the network", waits->text());
    const int next = likeliest_cause(pages, late);
    if (does_not_wait(page_of(pages, next))) return culprit_text(pages, hosts, next, *waits, members);
    if (const auto met = std::ranges::find(path, next); met != path.end()) {
      return circle_text(pages, {met, path.end()});
    }
    rank = next;
  }
}

}  // namespace lyceum
