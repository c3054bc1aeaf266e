#include "core/error.h"

#include <gtest/gtest.h>

namespace lyceum {
namespace {

template <class F>
Error caught(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ExitCode::done, "", std::source_location::current()};
}

TEST(Error, CarriesMessagePlaceAndExitCode) {
  const auto line = std::source_location::current().line() + 1;
  const Error error = caught([] { fail(ExitCode::bad_input, "file {}: {} of {} rows at {}", "a.bin", 3, 5u, 0.5); });
  EXPECT_STREQ(error.what(), "file a.bin: 3 of 5 rows at 0.5");
  EXPECT_EQ(error.code(), ExitCode::bad_input);
  EXPECT_EQ(error.where().line(), line);
  EXPECT_NE(std::string(error.where().file_name()).find("error_test.cpp"), std::string::npos);
}

TEST(Error, RequirementsThrowOnlyWhenBroken) {
  require(true, "never");
  require_input(true, "never");
  require_usage(true, "never");
  EXPECT_EQ(caught([] { require(false, "a"); }).code(), ExitCode::failed);
  EXPECT_EQ(caught([] { require_input(false, "a"); }).code(), ExitCode::bad_input);
  EXPECT_EQ(caught([] { require_usage(false, "a"); }).code(), ExitCode::usage);
}

TEST(Error, EveryKindOfArgument) {
  enum class Colour : std::uint8_t { red = 7 };
  EXPECT_EQ(format_message("{} {} {} {} {}",
                           {std::string("s"), std::string_view("v"), std::int64_t{-1}, ~std::uint64_t{0}, Colour::red}),
            "s v -1 18446744073709551615 7");
  EXPECT_EQ(format_message("{:.2f} of {:>3}", {1.0f / 3, 7}), "0.33 of   7");
  EXPECT_EQ(format_message("{}", {"with {braces}"}), "with {braces}");
}

}  // namespace
}  // namespace lyceum
