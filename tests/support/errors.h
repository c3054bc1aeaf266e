#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/error.h"

namespace lyceum {

/// Expects `call` to throw an Error with this exit code and a message of one line. Returns the message.
inline std::string error_of(const std::function<void()>& call, ExitCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

/// Expects `call` to throw an Error with ExitCode::bad_input whose message contains `words`.
inline void expect_bad_input(const std::function<void()>& call, const std::string& words) {
  EXPECT_THAT(error_of(call, ExitCode::bad_input), testing::HasSubstr(words));
}

/// Expects `call` to throw an Error with ExitCode::failed whose message contains `words`.
inline void expect_failure(const std::function<void()>& call, const std::string& words) {
  EXPECT_THAT(error_of(call, ExitCode::failed), testing::HasSubstr(words));
}

}  // namespace lyceum
