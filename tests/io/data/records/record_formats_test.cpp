#include "io/data/records/record_formats.h"

#include <gtest/gtest.h>

#include <string>

#include "io/data/records/json_lines.h"
#include "io/data/records/plain_text.h"

namespace lyceum {
namespace {

TEST(RecordFormats, NamesDecideInUpperOrLowerCase) {
  for (const char* name : {"a.jsonl", "a.JSONL", "b.NdJson", "c.jsonlines", "c.ldjson", "d.jsonl.gz", "d.JSONL.GZIP",
                           "d.jsonl.zst", "x/d.ndjson.Zstd"}) {
    EXPECT_EQ(&format_by_name(name), &json_lines) << name;
  }
  for (const char* name :
       {"jsonl", ".jsonl", "a.json", "a.jsonl.bz2", "a.jsonl.txt", "a.jsonl/b", "a.gz", "a.txt.gz", "a"}) {
    EXPECT_EQ(&format_by_name(name), &plain_text) << name;
  }
}

TEST(RecordFormats, FirstBytesOfOthersAreNamed) {
  using namespace std::string_literals;
  EXPECT_EQ(foreign_format("PAR1 and more"), "Parquet, to be converted to JSON lines");
  EXPECT_EQ(foreign_format("\xFF\xFE\0\0"s), "UTF-32, to be converted with iconv -f UTF-32 -t UTF-8");
  EXPECT_EQ(foreign_format("\xFF\xFEx"), "UTF-16, to be converted with iconv -f UTF-16 -t UTF-8");
  EXPECT_EQ(foreign_format(std::string(257, 'x') + "ustar"), "a tar archive, to be unpacked");
  EXPECT_EQ(foreign_format("{\"text\": 1}"), "");
  EXPECT_EQ(format_by_beginning("PAR1 and more"), nullptr);  // a foreign format, which cannot be read
  EXPECT_EQ(format_by_beginning("{\"text\": 1}"), nullptr);
}

}  // namespace
}  // namespace lyceum
