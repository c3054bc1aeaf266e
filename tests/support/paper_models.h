#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "config/binding.h"
#include "config/check.h"

namespace lyceum {

inline std::filesystem::path configs() { return std::filesystem::path(LYCEUM_SOURCE_DIR) / "configs"; }

/// Returns the configuration configs/FOLDER/NAME.ini, without derived values.
inline Config configured(const std::string& folder, const std::string& name) {
  return load_config(std::vector<std::string>{"--config", (configs() / folder / (name + ".ini")).string()}).config;
}
/// Returns the configuration configs/papers/NAME.ini, without derived values.
inline Config paper(const std::string& name) { return configured("papers", name); }

inline Config resolved(Config config, int world) {
  const std::vector<std::string> problems = contradictions(config, world);
  EXPECT_TRUE(problems.empty()) << problems.front();
  resolve(config, world);
  return config;
}

}  // namespace lyceum
