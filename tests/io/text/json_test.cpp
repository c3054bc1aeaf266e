#include "io/text/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "io/data/records/skipped.h"
#include "io/text/utf8.h"
#include "support/errors.h"

namespace lyceum {
namespace {

using Json = nlohmann::ordered_json;

TEST(JsonText, EqualsTheLibrarysTextForUtf8) {
  const Json json =
      Json::parse(R"({"a": [1, -2, 2.5, true, null, "x\n\"é🙂"], "b": {}, "c": [], "d": {"e": [[]]}})");
  for (const int indent : {-1, 0, 2}) EXPECT_EQ(json_text(json, indent), json.dump(indent));
}

// The expected texts are from Python: json.dumps(os.fsdecode(name)). os.fsencode(json.loads(text)) returns the name.
TEST(JsonText, BytesThatAreNotUtf8AreEscapedAsPythonDoes) {
  EXPECT_EQ(json_text(Json("caf\xE9")), R"("caf\udce9")");
  EXPECT_EQ(json_text(Json("\xFF\x80")), R"("\udcff\udc80")");
  EXPECT_EQ(json_text(Json("é\xE2\x82x\xED\xA0\x80")), "\"é\\udce2\\udc82x\\udced\\udca0\\udc80\"");
}

TEST(JsonText, OnlyBadStringsDifferFromTheLibrary) {
  Json json = Json::parse(R"({"a": [1, -2, 2.5, true, null, "x\n\"é🙂"], "b": {}, "c": [], "d": {"e": [[]]}})");
  json["bad"] = "@";
  for (const int indent : {-1, 0, 1, 2}) {
    std::string expected = json.dump(indent);
    expected.replace(expected.find('@'), 1, "\\udcff");
    Json bad = json;
    bad["bad"] = "\xFF";
    EXPECT_EQ(json_text(bad, indent), expected);
  }
}

TEST(JsonText, EveryStringIsReadAsItWasWritten) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  for (const std::string& string :
       {all, std::string("caf\xE9"), std::string("\\udce9"), std::string("a\xF0\x9F\x99\0b", 6),
        std::string("\xF0\x9F\x99\x82\xF0"), std::string("é\xC3"), std::string()}) {
    for (const int indent : {-1, 2}) {
      const Json json{{"key " + string, string}, {"list", {string, 1, Json{{string, nullptr}}}}};
      const std::string text = json_text(json, indent);
      EXPECT_TRUE(is_utf8(text));
      EXPECT_EQ(parse_json<Json>(text), json) << text;
      EXPECT_EQ(parse_json<nlohmann::json>(text), nlohmann::json(json)) << text;
    }
  }
}

TEST(ParseJson, AcceptsOnlyEscapesOfBytesBeyondJson) {
  for (const char* text : {R"("\udc7f")", R"("\udd00")", R"("\ud800")", R"("\udc80)", "\"\xFF\"", "NaN", "[1e999]",
                           R"({"a": "\udcff", "b": NaN})", R"(["\udcff")", R"(["\udcff"] x)", R"(["\udcff",])", ""}) {
    EXPECT_THROW(parse_json<Json>(text), Json::exception) << text;
    EXPECT_TRUE(parse_json<Json>(text, false).is_discarded()) << text;
  }
  EXPECT_EQ(parse_json<Json>(R"(["\udcff\u0041\ud83d\ude42\\udcff"])"), Json::array({"\xFF"
                                                                                     "A🙂\\udcff"}));
  // After an escape of a byte, the recursive reader takes over. Deep nesting must not crash it.
  EXPECT_TRUE(parse_json<Json>(R"(["\udcff", )" + std::string(100000, '['), false).is_discarded());
}

TEST(Skipped, NamesOfAnyBytesAreReadAsTheyWereWritten) {
  Skipped skipped;
  skipped.add("without \"k\xE9y\"", "caf\xE9/d.jsonl:1");
  EXPECT_EQ(Skipped::from_json(parse_json<nlohmann::json>(json_text(skipped.json()))).text(), skipped.text());
}

// tests/end_to_end/sources_test.sh compares parse_as_python() with Python's json.
TEST(ParseAsPython, AcceptsNonStandardNumbersAndStrings) {
  const nlohmann::json json = parse_as_python(
      "{\"a\": [NaN, Infinity, -Infinity, 1e999, -1e999, 7, -7, 0.5], \"b\": \"\xFF\\ud800\\udc00 \\udc80\"}");
  ASSERT_TRUE(json.is_object());
  constexpr double infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(json["a"][0].get<double>()));
  EXPECT_EQ(std::vector<double>(json["a"].begin() + 1, json["a"].end()),
            (std::vector<double>{infinity, -infinity, infinity, -infinity, 7, -7, 0.5}));
  EXPECT_TRUE(json["a"][5].is_number_integer());
  EXPECT_EQ(json["b"].get<std::string>(), "\xFF\xF0\x90\x80\x80 \xED\xB2\x80");
}

TEST(ParseAsPython, DiscardsTextsThatPythonRejects) {
  for (const std::string text :
       {"",          " ",         "nan",           "-NaN",          "+1",       "01",          "1.",
        ".5",        "[1,]",      "[NaN,]",        "{\"a\": NaN,}", "{NaN: 1}", "{\"a\" NaN}", "\"\\x\\ud800\"",
        "\"\\ud8\"", "\"\\ud800", "\"\\ud800\t\"", "[NaN",          "NaN x",    "\"\xFF"}) {
    EXPECT_TRUE(parse_as_python(text).is_discarded()) << text;
  }
  EXPECT_TRUE(parse_as_python(std::string("{}\0{}", 5)).is_discarded());
  EXPECT_TRUE(parse_as_python("[NaN, " + std::string(100000, '[')).is_discarded());
}

}  // namespace
}  // namespace lyceum
