#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/routing/log.h"
#include "io/routing/mixture_id.h"

namespace lyceum {

/// What the routers of one model do with the tokens of several data sets. [MoHD Fig. 11]
struct DomainRouting {
  struct DataSet {
    std::string name, prefix;  // as the user calls it; of its token files
    std::int64_t tokens = 0;
    double loss = 0;  // mean cross-entropy, nats a token
  };
  struct Router {
    MixtureId id;
    std::string kind;               // as moe.router calls it
    std::string choice = "expert";  // what it chooses: an expert, or a sub-dimension
    std::int64_t top_k = 0;
    std::int64_t always_on = 0;              // of the choices, the first ones: every token has them, and none chooses
    std::vector<std::int64_t> widths;        // [choices]
    std::vector<LayerRouting> routing = {};  // of each data set

    std::size_t choices() const { return widths.size(); }
    /// [choices]: of the choices that a data set's tokens made, whatever their rank; the sum is 1, or 0 of no choices.
    std::vector<double> shares(std::size_t data_set) const;
    /// Total-variation distance of two data sets' shares p and q, ½ Σ |p − q|: 0 where they are alike, 1 where no
    /// choice has tokens of both.
    double distance(std::size_t a, std::size_t b) const;
  };
  std::string checkpoint;
  std::int64_t step = 0;
  std::vector<DataSet> data_sets = {};
  std::vector<Router> routers = {};  // in the order of forward
};

/// How far apart the data sets are by one router: mean and largest distance of any two of them, and which two those
/// are. All 0 of a single one.
struct DomainDistance {
  double mean = 0, largest = 0;
  std::size_t a = 0, b = 0;
};
DomainDistance distance_of(const DomainRouting& domains, const DomainRouting::Router& router);

/// A choice, and the data sets that choose it least and most.
struct DomainSpread {
  std::size_t choice = 0, lowest = 0, highest = 0;
  double low = 0, high = 0;  // their shares
};
/// The choices whose shares differ most between data sets, the widest first, `most` at most; none that is alike for
/// all.
std::vector<DomainSpread> widest_spreads(const DomainRouting& domains, const DomainRouting::Router& router,
                                         std::size_t most);

/// Two tables: a row a data set, a row a router.
std::string domain_text(const DomainRouting& domains);
/// One JSON object with all of it.
std::string domain_json(const DomainRouting& domains);
/// HDF5, see docs/routing.md.
void write_domains(const std::filesystem::path& file, const DomainRouting& domains);

constexpr std::int64_t domains_format_version = 1;

}  // namespace lyceum
