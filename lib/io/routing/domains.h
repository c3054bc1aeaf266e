#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/routing/log.h"
#include "io/routing/mixture_id.h"

namespace lyceum {

/// The routing of one model on the tokens of several data sets. [MoHD Fig. 11]
struct DomainRouting {
  /// A data set and the model's loss on it.
  struct DataSet {
    std::string name, prefix;  // the user's name for it; path prefix of its token files
    std::int64_t tokens = 0;
    double loss = 0;  // mean cross-entropy, nats per token
  };
  /// A router, and its choices on the tokens of each data set.
  struct Router {
    MixtureId id;
    std::string kind;               // value of moe.router
    std::string choice = "expert";  // what the router chooses: "expert" or "sub-dimension"
    std::int64_t top_k = 0;
    std::int64_t always_on = 0;              // the number of first choices that every token has without choosing
    std::vector<std::int64_t> widths;        // [choices]: width of each expert or sub-dimension
    std::vector<LayerRouting> routing = {};  // one per data set

    std::size_t choices() const { return widths.size(); }
    /// Returns for each expert or sub-dimension its share of all choices that the tokens of a data set made, first and
    /// later ones together. [choices], with sum 1, or all 0 if there are no choices.
    std::vector<double> shares(std::size_t data_set) const;
    /// Returns the total-variation distance of the shares p and q of two data sets, ½ Σ |p − q|. It is 0 if they are
    /// equal and 1 if no expert or sub-dimension has tokens of both.
    double distance(std::size_t a, std::size_t b) const;
  };
  std::string checkpoint;
  std::int64_t step = 0;
  std::vector<DataSet> data_sets = {};
  std::vector<Router> routers = {};  // in forward order
};

/// The mean and the largest distance of any two data sets for one router, and the indices of the two that are farthest
/// apart. All 0 if there is only one data set.
struct DomainDistance {
  double mean = 0, largest = 0;
  std::size_t a = 0, b = 0;
};
/// Returns the distances of the data sets for one router.
DomainDistance distance_of(const DomainRouting& domains, const DomainRouting::Router& router);

/// The index of an expert or sub-dimension of a router, and the indices of the data sets with its lowest and highest
/// share.
struct DomainSpread {
  std::size_t choice = 0, lowest = 0, highest = 0;
  double low = 0, high = 0;  // their shares
};
/// Returns at most `most` choices whose shares differ between data sets, those with the largest difference first.
std::vector<DomainSpread> widest_spreads(const DomainRouting& domains, const DomainRouting::Router& router,
                                         std::size_t most);

/// Returns two tables: one row per data set, and one row per router.
std::string domain_text(const DomainRouting& domains);
/// Returns all numbers as one JSON object.
std::string domain_json(const DomainRouting& domains);
/// Writes all numbers to an HDF5 file; docs/routing.md describes it. Throws as write_hdf5() does.
void write_domains(const std::filesystem::path& file, const DomainRouting& domains);

constexpr std::int64_t domains_format_version = 1;

}  // namespace lyceum
