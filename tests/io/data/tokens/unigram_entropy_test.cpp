#include "io/data/tokens/unigram_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/error.h"
#include "io/data/tokens/megatron_writer.h"
#include "io/data/tokens/token_formats.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

class UnigramEntropyTest : public ::testing::Test {
 protected:
  std::shared_ptr<const TokenSource> file_of(const std::vector<std::int32_t>& tokens) {
    const std::string prefix = directory_.path() / "tokens";
    MegatronWriter writer(prefix, 100000);
    writer.add_document(tokens);
    writer.finish();
    return open_tokens(prefix);
  }

  TemporaryDirectory directory_;
};

TEST_F(UnigramEntropyTest, EqualsTheEntropyOfTheFrequencies) {
  const auto file = file_of({7, 7, 3, 9, 7, 3, 0, 0});
  // Frequencies 1/2, 1/4, 1/4
  EXPECT_NEAR(unigram_entropy(*file, 0, 4), 0.5 * std::log(2.0) + 0.5 * std::log(4.0), 1e-12);
  EXPECT_NEAR(unigram_entropy(*file, 4, 2), std::log(2.0), 1e-12);
  EXPECT_EQ(unigram_entropy(*file, 0, 2), 0);
  EXPECT_EQ(unigram_entropy(*file, 3, 1), 0);
  EXPECT_THROW(unigram_entropy(*file, 0, 0), Error);
  EXPECT_THROW(unigram_entropy(*file, 0, 9), Error);
}

TEST_F(UnigramEntropyTest, CountsTokensOverSeveralChunks) {
  std::vector<std::int32_t> tokens(200000);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i % 1000);
  EXPECT_NEAR(unigram_entropy(*file_of(tokens), 0, 200000), std::log(1000.0), 1e-9);
}

}  // namespace
}  // namespace lyceum
