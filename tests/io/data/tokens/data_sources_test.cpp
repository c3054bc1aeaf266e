#include "io/data/tokens/data_sources.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/data/tokens/megatron_writer.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

TEST(DataSources, AreReadFromAText) {
  using Sources = std::vector<DataSource>;
  const auto of = [](const std::string& text) { return data_sources("data.train", text); };
  EXPECT_EQ(of(""), Sources{});
  EXPECT_EQ(of("data/a"), (Sources{{"data/a"}}));
  EXPECT_EQ(of("0.7 a 3e-1 b"), (Sources{{"a", 0.7}, {"b", 0.3}}));
  EXPECT_EQ(of("a  b c"), (Sources{{"a"}, {"b"}, {"c"}}));
  const TemporaryDirectory directory;
  const std::string spaced = directory.path() / "0.5 my text";
  MegatronWriter writer(spaced, 10);
  writer.add_document(std::vector<std::int32_t>{1, 2, 3, 4});
  writer.finish();
  EXPECT_EQ(of(spaced), (Sources{{spaced}}));
  for (const char* const wrong :
       {"0.7 a b", "0.7 a 0 b", "-1 a", "1 a nan b", "0.5 a 0.5 a", "0.5 a 0.5 ./a", "a b a", "1 a x b"}) {
    EXPECT_THROW(of(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace lyceum
