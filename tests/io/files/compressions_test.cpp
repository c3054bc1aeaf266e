#include "io/files/compressions.h"

#include <gtest/gtest.h>

#include <string>

#include "support/compressed.h"

namespace lyceum {
namespace {

TEST(Compressions, FirstBytesDecide) {
  EXPECT_NE(decompressor_for(gzip("text")), nullptr);
  EXPECT_NE(decompressor_for(zstd("text")), nullptr);
  EXPECT_NE(decompressor_for("\x50\x2A\x4D\x18"), nullptr);  // a skippable frame of zstd
  for (const char* const plain : {"", "text", "\x1F", "\x28\xB5\x2F", "\x60\x2A\x4D\x18"}) {
    EXPECT_EQ(decompressor_for(plain), nullptr) << plain;
  }
}

TEST(Compressions, EndingsAreTakenOffNames) {
  EXPECT_EQ(uncompressed_name("folder/a.jsonl.gz"), "a.jsonl");
  EXPECT_EQ(uncompressed_name("a.GZIP"), "a");
  EXPECT_EQ(uncompressed_name("a.txt.Zst"), "a.txt");
  EXPECT_EQ(uncompressed_name("a.zstd"), "a");
  EXPECT_EQ(uncompressed_name("a.gz/b.jsonl"), "b.jsonl");
  EXPECT_EQ(uncompressed_name("a.bz2"), "a.bz2");
  EXPECT_EQ(uncompressed_name(".gz"), ".gz");
}

}  // namespace
}  // namespace lyceum
