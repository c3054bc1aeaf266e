#include "io/run/prometheus.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <limits>

#include "support/nan.h"

namespace lyceum {
namespace {

// Text format 0.0.4: https://prometheus.io/docs/instrumenting/exposition_formats/
TEST(Prometheus, NumbersAreGaugesWithAnEscapedLabel) {
  const nlohmann::ordered_json record{
      {"step", 12}, {"loss", nan}, {"grad_norm", std::numeric_limits<double>::infinity()}, {"lr", 1e-3}, {"note", "x"}};
  EXPECT_EQ(prometheus_text(record, "a \"b\"\\c\nd"),
            "# TYPE lyceum_step gauge\n"
            R"(lyceum_step{run="a \"b\"\\c\nd"} 12)"
            "\n# TYPE lyceum_loss gauge\n"
            R"(lyceum_loss{run="a \"b\"\\c\nd"} NaN)"
            "\n# TYPE lyceum_grad_norm gauge\n"
            R"(lyceum_grad_norm{run="a \"b\"\\c\nd"} +Inf)"
            "\n# TYPE lyceum_lr gauge\n"
            R"(lyceum_lr{run="a \"b\"\\c\nd"} 0.001)"
            "\n");
}

}  // namespace
}  // namespace lyceum
