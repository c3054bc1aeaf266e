#include "io/routing/activation_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <vector>

#include "io/files/hdf5.h"
#include "io/report/flow_page.h"
#include "support/temporary_directory.h"
#include "support/xml.h"

namespace lyceum {
namespace {

using testing::HasSubstr;

TEST(ActivationFlow, TellsDrawsAndWritesIt) {
  ActivationFlow flow{
      .checkpoint = "step-7", .data = "data/x", .step = 7, .tokens = 9, .seq_len = 3, .hidden = 2, .loss = 2};
  for (const Site site : {Site::attention, Site::ffn}) {
    for (const bool output : {false, true}) {
      const double nan = std::nan("");
      ActivationFlow::Values values;
      values.id = {0, site};
      values.output = output;
      values.magnitude = output ? std::vector<double>{0.5, 1} : std::vector<double>{2, 4};
      values.top_share = {0.75, 1};
      values.common.assign(high_parts.size() * longest_window, nan);
      for (std::size_t q = 0; q < high_parts.size(); ++q) {
        for (std::size_t w = 0; w < 3; ++w) values.common[q * longest_window + w] = 1.0 / static_cast<double>(w + 1);
      }
      values.shared.assign(high_parts.size() * (shared_window + 1), nan);
      values.run.assign(high_parts.size(), 1.5);
      flow.values.push_back(values);
    }
  }
  EXPECT_THAT(flow_text(flow), HasSubstr("0      attention output  0.7500    25.0 %  0.0000    75.0 %    75.0 %"));
  EXPECT_THAT(flow_text(flow),
              HasSubstr("FFN       outputs, mean ± standard deviation over layers: top 50 % have 75.0 ± 0.0 %"));
  const auto json = nlohmann::json::parse(flow_json(flow));
  EXPECT_EQ(json["values"][3]["high_in_2"], 0.25);
  EXPECT_TRUE(json["values"][3]["high_in_9"].is_null());
  parsed_xml(flow_page(flow));
  const TemporaryDirectory directory;
  write_flow(directory.path() / "flow.h5", flow);
  const hdf5::File in = hdf5::File::open(directory.path() / "flow.h5");
  EXPECT_EQ(in.dataset("/layers/000/ffn/output/top_share").read<double>(), (std::vector<double>{0.75, 1}));
  EXPECT_EQ(in.dataset("/layers/000/attention/input/common").shape(), (Shape{4, longest_window}));
}

}  // namespace
}  // namespace lyceum
