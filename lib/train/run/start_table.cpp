#include "train/run/start_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "io/run/batch_job.h"
#include "io/text/table.h"

namespace lyceum {

namespace {

constexpr std::size_t most_rows = 32;

std::string range(std::size_t first, std::size_t last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

bool alike(const RankPlace& a, const RankPlace& b) {
  return a.host == b.host && a.threads == b.threads && a.memory == b.memory && a.device == b.device;
}

}  // namespace

std::vector<std::string> start_lines(const RunSetup& setup) {
  const std::vector<RankPlace>& places = setup.places;
  Table table({">rank", "host", ">local", "cores", ">threads", ">memory", "device"});
  for (std::size_t first = 0, last = 0; first < places.size(); first = last + 1) {
    last = first;
    if (places.size() > most_rows) {
      while (last + 1 < places.size() && alike(places[first], places[last + 1])) ++last;
    }
    const RankPlace& place = places[first];
    const bool same_cores = place.cores == places[last].cores;
    table.add({range(first, last), place.host,
               range(static_cast<std::size_t>(place.local_rank), static_cast<std::size_t>(places[last].local_rank)),
               same_cores ? place.cores : fmt::format("{} … {}", place.cores, places[last].cores),
               fmt::format("{}", place.threads), text_of_bytes(static_cast<std::int64_t>(place.memory)), place.device});
  }
  std::vector<std::string> lines;
  if (const auto job = batch_job()) lines.push_back("job        " + text_of(*job));
  std::ranges::move(table.lines(), std::back_inserter(lines));
  return lines;
}

}  // namespace lyceum
