#include "io/run/prometheus.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <limits>

#include "support/nan.h"

namespace lyceum {
namespace {

// Text format 0.0.4: https://prometheus.io/docs/instrumenting/exposition_formats/
TEST(Prometheus, NumbersAreGaugesWithEscapedLabels) {
  const nlohmann::ordered_json record{{"step", 12},
                                      {"valid_loss", nan},
                                      {"lr", 1e-3},
                                      {"grad_norm", std::numeric_limits<double>::infinity()},
                                      {"valid_loss/data/a\\", 2.5},
                                      {"layer_grad_norm/3", 0.5},
                                      {"note", "x"}};
  EXPECT_EQ(prometheus_text(record, "a \"b\"\nc"), R"(# TYPE lyceum_grad_norm gauge
lyceum_grad_norm{run="a \"b\"\nc"} +Inf
# TYPE lyceum_layer_grad_norm gauge
lyceum_layer_grad_norm{run="a \"b\"\nc",layer="3"} 0.5
# TYPE lyceum_lr gauge
lyceum_lr{run="a \"b\"\nc"} 0.001
# TYPE lyceum_step gauge
lyceum_step{run="a \"b\"\nc"} 12
# TYPE lyceum_valid_loss gauge
lyceum_valid_loss{run="a \"b\"\nc"} NaN
lyceum_valid_loss{run="a \"b\"\nc",source="data/a\\"} 2.5
)");
}

}  // namespace
}  // namespace lyceum
