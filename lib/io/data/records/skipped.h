#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// The files or records that were skipped, by reason: by the first 30 reasons, and together for others.
class Skipped {
 public:
  /// `name`: a file, or a file and a line.
  void add(const std::string& reason, std::string name);
  /// What came after.
  void add(const Skipped& later);
  std::int64_t count() const;
  /// "3 binary (a.o, b.o, c.o), 9 empty (d, e, f, …)": how many of each reason, and the first few by name.
  std::string text() const;

  nlohmann::json json() const;
  static Skipped from_json(const nlohmann::json& json);

 private:
  struct Some {
    std::int64_t count = 0;
    std::vector<std::string> first;
  };
  static constexpr std::size_t most_reasons = 30;
  Some& of(const std::string& reason);

  std::map<std::string, Some> reasons_;
};

}  // namespace lyceum
