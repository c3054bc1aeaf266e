#include "io/routing/domains.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "io/files/hdf5.h"
#include "io/report/domains_page.h"
#include "support/temporary_directory.h"
#include "support/xml.h"

namespace lyceum {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

LayerRouting routing(std::vector<std::int64_t> counts) {
  return {
      .id = {}, .top_k = 2, .experts = 4, .counts = std::move(counts), .mean_probability = {0.4f, 0.3f, 0.2f, 0.1f}};
}

/// Returns the routing of three data sets with 4 tokens each, top-2 of 4 choices.
DomainRouting three_domains() {
  DomainRouting domains{.checkpoint = "step-7", .step = 7};
  for (const char* name : {"a<b", "prose", "code"}) {
    domains.data_sets.push_back({.name = name, .prefix = std::string("data/") + name, .tokens = 4, .loss = 1.5});
  }
  domains.routers.push_back({.id = {3, Site::attention},
                             .kind = "softmax",
                             .top_k = 2,
                             .widths = {8, 8, 16, 0},
                             .routing = {routing({4, 0, 0, 0, 0, 4, 0, 0}), routing({2, 2, 0, 0, 0, 4, 0, 0}),
                                         routing({0, 0, 4, 0, 0, 4, 0, 0})}});
  return domains;
}

TEST(DomainRouting, SharesAndDistances) {
  const DomainRouting domains = three_domains();
  const DomainRouting::Router& router = domains.routers[0];
  EXPECT_THAT(router.shares(0), ElementsAre(0.5, 0.5, 0, 0));
  EXPECT_THAT(router.shares(1), ElementsAre(0.25, 0.75, 0, 0));
  EXPECT_THAT(router.shares(2), ElementsAre(0, 0.5, 0.5, 0));
  EXPECT_EQ(router.distance(1, 1), 0);
  EXPECT_EQ(router.distance(0, 1), 0.25);
  EXPECT_EQ(router.distance(2, 1), 0.5);
  const DomainDistance distance = distance_of(domains, router);
  EXPECT_NEAR(distance.mean, (0.25 + 0.5 + 0.5) / 3, 1e-15);
  EXPECT_EQ(distance.largest, 0.5);
  EXPECT_EQ(distance.a, 0u);
  EXPECT_EQ(distance.b, 2u);
  const std::vector<DomainSpread> spreads = widest_spreads(domains, router, 2);
  ASSERT_EQ(spreads.size(), 2u);
  EXPECT_EQ(spreads[0].choice, 0u);
  EXPECT_EQ(spreads[0].lowest, 2u);
  EXPECT_EQ(spreads[0].highest, 0u);
  EXPECT_EQ(spreads[1].choice, 2u);
  EXPECT_EQ(widest_spreads(domains, router, 9).size(), 3u);  // no data set uses the last choice
}

TEST(DomainRouting, ChoicesOfNobodyHaveNoShare) {
  DomainRouting domains = three_domains();
  domains.data_sets.resize(1);
  domains.routers[0].routing = {routing(std::vector<std::int64_t>(8, 0))};
  EXPECT_THAT(domains.routers[0].shares(0), ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(distance_of(domains, domains.routers[0]).mean, 0);
  EXPECT_THAT(domain_text(domains), HasSubstr("layer3 attention  softmax        4      2        -           -  -"));
}

TEST(DomainRouting, TellsItAsTextAndJson) {
  const std::string text = domain_text(three_domains());
  EXPECT_THAT(text, HasSubstr("0.4167      0.5000  a<b, code  0 (code 0.0 %, a<b 50.0 %), 2 (a<b 0.0 %, code 50.0 %)"));
  const auto json = nlohmann::json::parse(domain_json(three_domains()));
  EXPECT_EQ(json["data_sets"][2]["data"], "data/code");
  const auto& router = json["routers"][0];
  EXPECT_EQ(router["site"], "attention");
  EXPECT_EQ(router["share"]["prose"], nlohmann::json({0.25, 0.75, 0.0, 0.0}));
  EXPECT_EQ(router["total_variation"]["prose"]["code"], 0.5);
}

TEST(DomainRouting, WritesAFile) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "domains.h5";
  write_domains(file, three_domains());
  const hdf5::File in = hdf5::File::open(file);
  EXPECT_EQ(in.dataset("/tokens").read<std::int64_t>(), (std::vector<std::int64_t>{4, 4, 4}));
  const std::string group = "/layers/003/attention";
  EXPECT_EQ(in.dataset(group + "/counts").shape(), (Shape{3, 2, 4}));
  EXPECT_EQ(in.dataset(group + "/share").read<double>(),
            (std::vector<double>{0.5, 0.5, 0, 0, 0.25, 0.75, 0, 0, 0, 0.5, 0.5, 0}));
  EXPECT_EQ(in.dataset(group + "/total_variation").read<double>(),
            (std::vector<double>{0, 0.25, 0.5, 0.25, 0, 0.5, 0.5, 0.5, 0}));
  EXPECT_EQ(in.object(group).integers("expert_sizes"), (std::vector<std::int64_t>{8, 8, 16, 0}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(DomainRouting, DrawsAPage) {
  const std::string page = domains_page(three_domains());
  parsed_xml(page);
  EXPECT_THAT(page, HasSubstr("a&lt;b, expert 1 of width 8: 50.00 %, 2.000 × even"));
  EXPECT_THAT(page, HasSubstr("Layer 3 attention: mean probability"));
}

// Sub-dimensions that are always active are not counted as choices of the router, which has three.
TEST(DomainRouting, FixedChoicesHaveNoShare) {
  DomainRouting domains = three_domains();
  domains.routers[0].always_on = 1;
  domains.routers[0].routing[0] = routing({0, 4, 0, 0, 0, 0, 4, 0});
  const std::string page = domains_page(domains);
  EXPECT_THAT(page, HasSubstr("softmax router, 2 of 3 experts per token; the first is always active"));
  EXPECT_THAT(page, HasSubstr("a&lt;b, expert 1 of width 8: 50.00 %, 1.500 × even"));
  EXPECT_THAT(page, HasSubstr("a&lt;b, expert 0 of width 8: 40.00 %, 1.600 × even"));  // its mean probability
}

}  // namespace
}  // namespace lyceum
