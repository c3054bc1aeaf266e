#include "io/text/table.h"

#include <gtest/gtest.h>

#include "support/nan.h"

namespace lyceum {
namespace {

TEST(Table, AlignsColumns) {
  Table table({"name", ">n"});
  table.add({"a", "1"});
  table.add({"long name", "12345"});
  EXPECT_EQ(table.text(), "name           n\na              1\nlong name  12345\n");
}

TEST(Table, CountsInThreeDigits) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(950), "950");
  EXPECT_EQ(human_count(999.6), "1.00 k");
  EXPECT_EQ(human_count(12345), "12.3 k");
  EXPECT_EQ(human_count(1.996e12), "2.00 T");
  EXPECT_EQ(human_count(9.2e18), "9.20 E");
  EXPECT_EQ(human_count(-1500), "-1.50 k");
  EXPECT_EQ(human_count(nan), "nan");
  EXPECT_EQ(human_count(-nan), "nan");
  EXPECT_EQ(human_count(950, "FLOP/s"), "950 FLOP/s");
  EXPECT_EQ(human_count(6.01e9, "FLOP/s"), "6.01 GFLOP/s");
}

TEST(Table, BytesInThreeDigits) {
  EXPECT_EQ(text_of_bytes(999), "999 B");
  EXPECT_EQ(text_of_bytes(1000), "1.00 kB");
  EXPECT_EQ(text_of_bytes(999999), "1.00 MB");
  EXPECT_EQ(text_of_bytes(12345678), "12.3 MB");
}

}  // namespace
}  // namespace lyceum
