#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// Counts the files or records that were skipped, by reason. From the 31st reason on, they are counted together as "for
/// other reasons".
class Skipped {
 public:
  /// Counts one. `name`: a file, or a file and a line ("FILE:LINE").
  void add(const std::string& reason, std::string name);
  /// Adds the counts of a later part of the same input.
  void add(const Skipped& later);
  /// Returns the number of all files or records that were skipped.
  std::int64_t count() const;
  /// Lists the count and the first three names of each reason: "3 binary (a.o, b.o, c.o), 9 empty (d, e, f, …)".
  std::string text() const;

  /// Returns the counts and names as JSON, which from_json() reads: {REASON: {"count": …, "first": [NAME, …]}}.
  nlohmann::json json() const;
  /// Throws the exceptions of the JSON library if `json` has another form.
  static Skipped from_json(const nlohmann::json& json);

 private:
  struct Entry {
    std::int64_t count = 0;
    std::vector<std::string> first;
  };
  static constexpr std::size_t most_reasons = 30;
  Entry& entry_of(const std::string& reason);

  std::map<std::string, Entry> reasons_;
};

}  // namespace lyceum
