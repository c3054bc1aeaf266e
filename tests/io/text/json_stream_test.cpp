#include "io/text/json_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/errors.h"

namespace lyceum {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Members = std::vector<std::pair<std::string, std::string>>;

/// Returns what read_json_members() passes if the text comes in blocks of `block` bytes and arrays named "list" are
/// divided. Stops after the member "stop".
Members members_of(std::string_view text, std::size_t block) {
  Members members;
  const auto next = [&] {
    const std::string_view taken = text.substr(0, block);
    text.remove_prefix(taken.size());
    return taken;
  };
  read_json_members(next, {.divided = [](std::string_view key) { return key == "list"; },
                           .each =
                               [&](std::string_view key, std::string_view value) {
                                 members.emplace_back(key, value);
                                 return key != "stop";
                               }});
  return members;
}

TEST(JsonStream, PassesMembersAndElements) {
  const std::string text =
      " {\"a\" :1.5e3, \"b\": \"x\\\"]},\\\\\",\"list\": [ 1,\"two\", [3 , {\"}\":4}], {} ],\n"
      "\"other\":[1, 2],\"list\":[],\"list\":{\"a\":1}, \"\\u00e9\":null }\n";
  for (const std::size_t block : {std::size_t{1}, std::size_t{7}, text.size()}) {
    EXPECT_THAT(
        members_of(text, block),
        ElementsAre(testing::Pair("a", "1.5e3"), testing::Pair("b", "\"x\\\"]},\\\\\""), testing::Pair("list", "1"),
                    testing::Pair("list", "\"two\""), testing::Pair("list", "[3 , {\"}\":4}]"),
                    testing::Pair("list", "{}"), testing::Pair("other", "[1, 2]"), testing::Pair("list", "{\"a\":1}"),
                    testing::Pair("é", "null")))
        << block;
  }
  EXPECT_THAT(members_of("{}", 1), ElementsAre());
  EXPECT_THAT(members_of("{\"stop\":1, the rest is not read", 4), ElementsAre(testing::Pair("stop", "1")));
}

TEST(JsonStream, RefusesWhatIsNoObject) {
  for (const char* text : {"", "{", "{\"a", "{\"a\\", "{\"a\":", "{\"a\":[1,", "{\"a\":1", "{\"list\":[1,2"}) {
    EXPECT_THAT(error_of([&] { members_of(text, 3); }, ExitCode::bad_input), HasSubstr("damaged: it ends early"))
        << text;
  }
  for (const char* text :
       {"[1]", "x", "{a:1}", "{\"a\" 1}", "{\"a\":}", "{\"a\":1,}", "{\"list\":[1,]}", "{\"a\":]}", "{\"a\":1]"}) {
    EXPECT_THAT(error_of([&] { members_of(text, 3); }, ExitCode::bad_input), HasSubstr("is not what JSON has there"))
        << text;
  }
  EXPECT_THAT(error_of([&] { members_of("{} {}", 3); }, ExitCode::bad_input), HasSubstr("byte 4 is after the end"));
  std::string deep = "{\"a\":";
  EXPECT_THAT(members_of(deep + std::string(15, '[') + std::string(15, ']') + "}", 8).size(), 1u);
  EXPECT_THAT(error_of([&] { members_of(deep + std::string(16, '['), 8); }, ExitCode::bad_input),
              HasSubstr("nests deeper than 16"));
}

}  // namespace
}  // namespace lyceum
