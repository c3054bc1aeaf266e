#include "io/run/gemm_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <utility>

#include "core/error.h"
#include "io/files/atomic_file.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

GemmPins some_pins() {
  const GemmShape shape{.m = 64,
                        .n = std::int64_t{1} << 40,
                        .k = 853,
                        .a_stride = 65,
                        .b_stride = 66,
                        .c_stride = 67,
                        .transpose_a = true,
                        .transpose_b = false,
                        .accumulate = true,
                        .in = DType::bf16,
                        .out = DType::f32,
                        .a_alignment = 256,
                        .b_alignment = 2,
                        .c_alignment = 16};
  GemmShape other = shape;
  other.accumulate = false;
  other.in = other.out = DType::f64;
  GemmShape parts = shape;
  parts.batch = 8;
  GemmShape stacked = parts;
  stacked.separate = true;
  const GemmAlgorithm algorithm{{1, 2, std::numeric_limits<std::uint64_t>::max(), 0, 5, 6, 7, std::uint64_t{1} << 63},
                                3};
  return {{"GPU \"A\", cuBLASLt 1", {{shape, algorithm}, {other, {}}}},
          {"GPU B, cuBLASLt 2", {{shape, {}}, {parts, {}}, {stacked, {}}}}};
}

TEST(GemmFile, ComesBackAsItWas) {
  EXPECT_EQ(parse_gemm_file(gemm_file_text({}), "x"), GemmPins{});
  EXPECT_EQ(parse_gemm_file(gemm_file_text(some_pins()), "x"), some_pins());
  const TemporaryDirectory directory;
  replace_file(directory.path() / "gemm.json", gemm_file_text(some_pins()));
  EXPECT_EQ(read_gemm_file(directory.path() / "gemm.json"), some_pins());
}

// A file written before products could be batched.
TEST(GemmFile, WithoutBatchesHasSingleProducts) {
  const GemmPins pins = parse_gemm_file(
      R"({"format": "lyceum-gemm-choices", "version": 1, "choices": [
{"accumulate":false,"algorithm":[0,1,2,3,4,5,6,7],"alignments":[16,16,256],"device":"H100","proposal":1,)"
      R"("sizes":[64,128,256],"strides":[256,256,128],"transpose":[false,true],"types":["bf16","f32"]}
], "sha256": "c1dc310cf7be0ea38535dcf739db67c53f6aeb7e0b4d140c15b561d8b4b46ba6"})",
      "old");
  ASSERT_EQ(pins.at("H100").size(), 1u);
  EXPECT_EQ(pins.at("H100").begin()->first.batch, 1);
  EXPECT_THAT(gemm_file_text(pins), testing::Not(HasSubstr("batch")));
}

TEST(GemmFile, CountsItsChoices) {
  EXPECT_EQ(choices_text(some_pins()), "5 algorithms chosen by timing, 1 of them not cuBLASLt's first proposal");
}

std::string told_of(const std::string& text) {
  try {
    parse_gemm_file(text, "runs/x/gemm.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), StartsWith("runs/x/gemm.json: "));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
    return error.what();
  }
  return "nothing is wrong";
}

TEST(GemmFile, DamageIsToldInALineThatNamesTheFile) {
  const std::string good = gemm_file_text(some_pins());
  const auto with = [&](const std::string& part, const std::string& instead) {
    std::string text = good;
    const std::size_t at = text.find(part);
    EXPECT_NE(at, std::string::npos) << part;
    return told_of(text.replace(at, part.size(), instead));
  };
  EXPECT_THAT(with("853", "854"), HasSubstr("it differs from the SHA-256 at its end"));
  EXPECT_THAT(with("\"proposal\":3", "\"proposal\":2"), HasSubstr("it differs from the SHA-256 at its end"));
  EXPECT_THAT(with("lyceum-gemm-choices", "something"), HasSubstr("not a file of chosen GEMM algorithms, version 1"));
  EXPECT_THAT(with("\"version\": 1", "\"version\": 2"), HasSubstr("not a file of chosen GEMM algorithms, version 1"));
  EXPECT_THAT(with("\"choices\"", "\"others\""), HasSubstr("remove it, and run.gemm_file if that names it"));
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, good.size() / 2, good.size() - 3}) {
    EXPECT_THAT(told_of(good.substr(0, length)), HasSubstr("remove it")) << length;
  }
  EXPECT_THAT(told_of("[]"), HasSubstr("remove it"));
}

TEST(GemmFile, ThatCannotBeReadIsNamed) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory.path() / "folder.json");
  for (const auto& [name, what] :
       {std::pair{"absent.json", " cannot be opened: "}, {"folder.json", " cannot be opened: Is a directory"}}) {
    try {
      read_gemm_file(directory.path() / name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      EXPECT_THAT(error.what(), HasSubstr(std::string(name) + what));
    }
  }
}

}  // namespace
}  // namespace lyceum
