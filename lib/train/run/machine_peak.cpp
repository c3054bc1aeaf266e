#include "train/run/machine_peak.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "train/setup/machine.h"

namespace lyceum {

namespace {

constexpr int max_windows = 12;
constexpr double agreement = 0.05;          // largest relative difference of the two best windows
constexpr double undisturbed_share = 0.85;  // least processor time per thread and second of an undisturbed window

/// Adds one thread per core of a host to `threads` [ranks of the job], for at most `limit` cores. Each core is given to
/// the rank that has fewest so far among the ranks that may use it. `ranks`: those of the host.
void share_cores(std::span<const RankResources> resources, const std::vector<std::size_t>& ranks, double limit,
                 std::vector<int>& threads) {
  std::map<int, std::vector<std::size_t>> users;  // by core
  for (const std::size_t rank : ranks) {
    for (const int core : core_numbers(resources[rank].cores)) users[core].push_back(rank);
  }
  int left =
      static_cast<int>(std::clamp(std::floor(limit), 1.0, static_cast<double>(std::max<std::size_t>(1, users.size()))));
  for (const auto& [core, ranks_of_core] : users) {
    if (left-- == 0) return;
    ++threads[*std::ranges::min_element(ranks_of_core, {}, [&](std::size_t rank) { return threads[rank]; })];
  }
}

}  // namespace

MeasuringShares measuring_shares(std::span<const RankResources> resources, std::span<const double> core_limit) {
  std::map<std::string, std::vector<std::size_t>> hosts;
  for (std::size_t rank = 0; rank < resources.size(); ++rank) hosts[resources[rank].host].push_back(rank);
  MeasuringShares shares{std::vector<int>(resources.size()), std::vector<int>(resources.size())};
  for (const auto& [host, ranks] : hosts) {
    if (resources[ranks.front()].device == "cpu") {
      double limit = 0;
      for (const std::size_t rank : ranks) limit = std::max(limit, core_limit[rank]);
      share_cores(resources, ranks, limit, shares.threads);
    } else {
      std::set<std::string> devices;  // the first rank of each GPU measures it
      for (const std::size_t rank : ranks) shares.threads[rank] = devices.insert(resources[rank].device).second ? 1 : 0;
    }
    int sum = 0;
    for (const std::size_t rank : ranks) sum += shares.threads[rank];
    for (const std::size_t rank : ranks) shares.of_machine[rank] = sum;
  }
  return shares;
}

void MachinePeak::add(std::span<const PeakWindow> ranks, int threads) {
  double flops = 0, begin = std::numeric_limits<double>::infinity(), end = -begin, core_seconds = 0;
  bool knows_cores = true;
  for (const PeakWindow& window : ranks) {
    flops += window.flops;
    begin = std::min(begin, window.begin);
    end = std::max(end, window.end);
    core_seconds += window.core_seconds;
    knows_cores = knows_cores && window.core_seconds >= 0;
  }
  const double rate = flops / (end - begin);
  if (!std::isfinite(rate) || !(rate > 0)) return;
  all_.push_back(rate);
  if (!knows_cores || core_seconds >= undisturbed_share * threads * (end - begin)) undisturbed_.push_back(rate);
}

double MachinePeak::flops() const { return all_.empty() ? 0 : *std::ranges::max_element(all_); }

bool MachinePeak::steady() const {
  std::vector<double> rates = undisturbed_;
  if (rates.size() < 3) return false;
  std::ranges::sort(rates, std::greater());
  return rates[0] == flops() && rates[1] >= (1 - agreement) * rates[0];
}

std::vector<MachinePeak> measure_machines(const ProcessGroup& world, std::span<const RankResources> resources,
                                          const MeasuringShares& shares, const MeasureWindow& measure) {
  const int own = shares.threads[static_cast<std::size_t>(world.rank())];
  std::map<std::string, MachinePeak> machines;
  const auto all_steady = [&] {
    return std::ranges::all_of(machines, [](const auto& machine) { return machine.second.steady(); });
  };
  for (int window = 0; window < max_windows && (window == 0 || !all_steady()); ++window) {
    world.barrier();
    const PeakWindow mine = own > 0 ? measure(own) : PeakWindow{};
    const auto bits = std::bit_cast<std::array<std::int64_t, 4>>(mine);
    std::vector<std::int64_t> gathered(resources.size() * bits.size());
    world.all_gather(std::span<const std::int64_t>(bits), std::span(gathered));
    std::map<std::string, std::vector<PeakWindow>> windows;
    std::map<std::string, int> threads;
    for (std::size_t rank = 0; rank < resources.size(); ++rank) {
      if (shares.threads[rank] == 0) continue;
      std::array<std::int64_t, 4> of_rank;
      std::copy_n(gathered.begin() + static_cast<std::ptrdiff_t>(4 * rank), 4, of_rank.begin());
      windows[resources[rank].host].push_back(std::bit_cast<PeakWindow>(of_rank));
      threads[resources[rank].host] = shares.of_machine[rank];
    }
    for (const auto& [host, of_host] : windows) machines[host].add(of_host, threads[host]);
  }
  std::vector<MachinePeak> peaks;
  for (const RankResources& rank_resources : resources) peaks.push_back(machines[rank_resources.host]);
  return peaks;
}

}  // namespace lyceum
