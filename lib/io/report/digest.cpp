#include "io/report/digest.h"

#include <cmath>
#include <utility>

#include "io/report/chart.h"
#include "io/report/time_map.h"
#include "io/routing/merge.h"
#include "io/routing/stats.h"

namespace lyceum {
namespace {

void add_value(LayerSpread& spread, double value, double worst) {
  spread.sum += value;
  ++spread.layers;
  spread.worst = worst;
}

/// Adds a record of one router. `load` is its load over all choices.
void add_record(RecordBalance& balance, const RoutedTokens& load, const RoutingHistory::Layer& layer,
                std::size_t record) {
  if (load.total() > 0) {
    const double violation = load.max_violation(), entropy = load.entropy(), dropped = load.dropped_share();
    add_value(balance.violation, violation, std::fmax(balance.violation.worst, violation));
    add_value(balance.entropy, entropy, std::fmin(balance.entropy.worst, entropy));
    add_value(balance.dropped, dropped, std::fmax(balance.dropped.worst, dropped));
  }
  const StepBalance steps = step_balance(layer, record);
  if (std::isnan(steps.max_vio_mean)) return;
  const auto choosable = static_cast<double>(layer.choosable());
  add_value(balance.step_violation, double{steps.max_vio_mean},
            std::fmax(balance.step_violation.worst, double{steps.max_vio_max}));
  add_value(balance.step_idle, double{steps.idle_mean} / choosable,
            std::fmax(balance.step_idle.worst, double{steps.idle_max} / choosable));
}

}  // namespace

double LayerSpread::mean() const { return layers ? sum / static_cast<double>(layers) : no_value; }

RoutingDigest digest_of(const RoutingReader& log, RecordRange range) {
  RoutingDigest digest{.steps = log.steps(),
                       .range = range,
                       .columns = time_columns(log),
                       .selected = {.steps = {log.steps()[range.end - 1]}, .layers = log.routers()},
                       .over_time = {.steps = {}, .layers = log.routers()},
                       .balance = std::vector<RecordBalance>(log.steps().size()),
                       .starved = {},
                       .alarms = {}};
  for (const RecordRange& column : digest.columns) digest.over_time.steps.push_back(digest.steps[column.end - 1]);
  for (std::size_t i = 0; i < log.routers().size(); ++i) {
    const RoutingHistory::Layer& router = log.routers()[i];
    RouterWatch watch(router, digest.steps);
    RecordMerge selected(router), column(router);
    auto end_of_column = digest.columns.begin();
    log.for_each_part(i, {0, digest.steps.size()}, [&](const RoutingHistory::Layer& part, std::size_t first) {
      for (std::size_t r = 0; r < part.records(); ++r) {
        const std::size_t number = first + r;
        const RoutedTokens load = layer_load(part, {r, r + 1});
        add_record(digest.balance[number], load, part, r);
        watch.add(part, r, load.tokens);
        if (range.begin <= number && number < range.end) selected.add(part, r);
        column.add(part, r);
        if (number + 1 == end_of_column->end) {
          column.append_to(digest.over_time.layers[i]);
          ++end_of_column;
        }
      }
    });
    selected.append_to(digest.selected.layers[i]);
    digest.starved.push_back(watch.starved());
    for (Alarm& alarm : watch.alarms(digest.starved.back())) digest.alarms.push_back(std::move(alarm));
  }
  sort_alarms(digest.alarms);
  return digest;
}

}  // namespace lyceum
