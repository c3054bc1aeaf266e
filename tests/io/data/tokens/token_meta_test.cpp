#include "io/data/tokens/token_meta.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

#include "core/error.h"
#include "io/data/tokens/megatron_files.h"
#include "io/files/sha256.h"
#include "io/files/whole_file.h"

namespace lyceum {
namespace {

using TokenMetaTest = MegatronFiles;

TEST_F(TokenMetaTest, MetaRoundTripsAndMayBeAbsent) {
  EXPECT_EQ(read_token_meta(prefix()), std::nullopt);
  const TokenMeta meta{.bytes = std::int64_t{1} << 40,
                       .documents = 2,
                       .tokens = 3,
                       .vocab = 4,
                       .tokenizer = "tok\"en.model",
                       .tokenizer_sha256 = sha256("abc")};
  write_token_meta(prefix(), meta);
  EXPECT_EQ(read_token_meta(prefix()), meta);
  TokenMeta masked = meta;
  masked.trained = 2;
  write_token_meta(prefix(), masked);
  EXPECT_EQ(read_token_meta(prefix()), masked);
  for (const char* const damaged : {"", "{", "[]", "{\"bytes\": 1}", "{\"bytes\": \"x\"}"}) {
    write_whole_file(prefix() + ".json", damaged);
    EXPECT_THROW(read_token_meta(prefix()), Error) << damaged;
  }
}

}  // namespace
}  // namespace lyceum
