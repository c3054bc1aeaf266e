#include "train/eval/domain_routing.h"

#include <cstddef>
#include <utility>

#include "core/error.h"
#include "model/routing/mixture.h"
#include "model/routing/routing_sums.h"

namespace lyceum {

std::vector<DomainRouting::Router> domain_routers(const Config& config) {
  std::vector<DomainRouting::Router> routers;
  for (const Mixture& mixture : mixtures_of(config)) {
    routers.push_back({.id = mixture.id,
                       .kind = name_of(mixture.router),
                       .choice = mixture.kind == Mixture::Kind::sub_dimensions ? "sub-dimension" : "expert",
                       .top_k = mixture.k,
                       .always_on = mixture.never_chosen(),
                       .widths = mixture.widths});
  }
  return routers;
}

void add_domain(DomainRouting& domains, DomainRouting::DataSet data_set, const Evaluation& evaluation) {
  data_set.tokens = evaluation.positions;
  data_set.loss = evaluation.loss;
  std::vector<LayerRouting> record = routing_record(evaluation.routing, evaluation.positions);
  require(record.size() == domains.routers.size(), "an evaluation has {} routers instead of {}", record.size(),
          domains.routers.size());
  for (std::size_t r = 0; r < record.size(); ++r) domains.routers[r].routing.push_back(std::move(record[r]));
  domains.data_sets.push_back(std::move(data_set));
}

}  // namespace lyceum
