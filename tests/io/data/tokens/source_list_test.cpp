#include "io/data/tokens/source_list.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "io/data/tokens/data_sources.h"
#include "io/files/atomic_file.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

class SourceList : public testing::Test {
 protected:
  std::string of(const std::string& text) const {
    write_file(file_, text);
    return sources_of_file(file_);
  }
  void expect_refused(const std::string& text, const std::string& words) const {
    EXPECT_THAT(error_of([&] { of(text); }, ExitCode::usage), testing::HasSubstr("sources.txt" + words)) << text;
  }
  TemporaryDirectory directory_;
  std::filesystem::path file_ = directory_.path() / "sources.txt";
};

TEST_F(SourceList, BecomesTheValueOfAKey) {
  EXPECT_EQ(of("data/a"), "data/a");
  EXPECT_EQ(of("# a comment\n\n 0.7\tdata/web # most\r\n3e-1 data/c#\n#0.5 data/off\n"), "0.7 data/web 3e-1 data/c#");
  EXPECT_EQ(of("a\nb\nc\n"), "a b c");
  EXPECT_EQ(of("\xEF\xBB\xBF"
               "a\n"),
            "a");  // a byte order mark
  std::string many;
  for (int i = 0; i < 1000; ++i) many += std::to_string(i + 1) + " data/" + std::to_string(i) + "\n";
  const std::vector<DataSource> sources = data_sources("data.train", of(many));
  ASSERT_EQ(sources.size(), 1000u);
  EXPECT_EQ(sources[999], (DataSource{"data/999", 1000}));
}

TEST_F(SourceList, MistakesAreToldWithTheirLine) {
  expect_refused("a\n0.5 b\n", ":2: give either all sources a weight or none");
  expect_refused("0.5 a\nb\n", ":2: give either all sources a weight or none");
  expect_refused("\n0 a\n", ":2: the weight 0 is not positive");
  expect_refused("inf a\n", ":1: the weight inf is not positive");
  expect_refused("nan a\n", ":1: the weight nan is not positive");
  expect_refused("0.5\n", ":1: the weight 0.5 has no prefix");
  expect_refused("my data\n", ":1: 'my data' is not a prefix");
  expect_refused("1 my data\n", ":1: '1 my data' is not a prefix");
  expect_refused("1 a\n2 b\n\n3 a\n", ":4: a is already in line 1");
  expect_refused("a\n./a\n", ":2: ./a is already in line 1");
  expect_refused("a\n;b\n", ":2: ;b begins with ; or has control characters");
  expect_refused("a\x01\n", ":1: a\\x01 begins with ; or has control characters");
  expect_refused("1 ~/a\n", ":1: ~/a begins with ~, which only a shell");
  expect_refused("# nothing\n", ": names no source");
  expect_refused(std::string((1 << 20) + 1, ' '), ": is larger than 1 MiB");
  std::string many;
  for (int i = 0; i <= most_listed_sources; ++i) many += "data/" + std::to_string(i) + "\n";
  expect_refused(many, ": more than 4096 sources");
  const auto absent = [&] { sources_of_file(directory_.path() / "absent"); };
  EXPECT_THAT(error_of(absent, ExitCode::usage), testing::HasSubstr("absent: cannot be opened"));
  const auto folder = [&] { sources_of_file(directory_.path()); };
  EXPECT_THAT(error_of(folder, ExitCode::usage), testing::HasSubstr("cannot be opened"));
}

}  // namespace
}  // namespace lyceum
