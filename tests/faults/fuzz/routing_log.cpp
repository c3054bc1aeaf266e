#include <sstream>

#include "io/routing/csv.h"
#include "io/routing/log.h"
#include "io/routing/stats.h"
#include "io/routing/text.h"
#include "support.h"

/// Reads routing.h5, and opens it to continue it as a resumed run does.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  fuzz::reuse_hdf5_memory();
  const std::filesystem::path file = fuzz::input_file("routing.h5", fuzz::text_of(data, size));
  return fuzz::taken_or_refused([&] {
    const RoutingHistory history = read_routing(file);
    std::ostringstream csv;
    write_routing_csv(history, csv);
    fuzz::refused([&] { routing_table(history, select_records(history), true); });
    if (history.steps.empty() || history.steps[0] < 0) return;
    std::vector<RoutingLog::Layer> layers;
    for (const RoutingHistory::Layer& layer : history.layers) {
      layers.push_back({layer.id, layer.top_k, layer.drops, layer.always_on, layer.expert_sizes, layer.expert_rank});
    }
    const std::int64_t step = history.steps[(history.steps.size() - 1) / 2];
    const RoutingLog log(file, layers, step);
    fuzz::hold(log.last_step() == step && read_routing(file).steps.back() == step, "a log resumes at another step");
  });
}
