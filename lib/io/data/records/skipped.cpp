#include "io/data/records/skipped.h"

#include <boost/algorithm/string/join.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <utility>

#include "io/text/json.h"

namespace lyceum {

namespace {

constexpr std::size_t few = 3;

}  // namespace

Skipped::Entry& Skipped::entry_of(const std::string& reason) {
  const bool is_known = reasons_.contains(reason) || reasons_.size() < most_reasons;
  return reasons_[is_known ? reason : "for other reasons"];
}

void Skipped::add(const std::string& reason, std::string name) {
  Entry& entry = entry_of(reason);
  ++entry.count;
  if (entry.first.size() < few) entry.first.push_back(std::move(name));
}

void Skipped::add(const Skipped& later) {
  for (const auto& [reason, entry] : later.reasons_) {
    Entry& own = entry_of(reason);
    own.count += entry.count;
    for (std::size_t i = 0; i < entry.first.size() && own.first.size() < few; ++i) own.first.push_back(entry.first[i]);
  }
}

std::int64_t Skipped::count() const {
  std::int64_t sum = 0;
  for (const auto& [reason, entry] : reasons_) sum += entry.count;
  return sum;
}

std::string Skipped::text() const {
  std::string text;
  for (const auto& [reason, entry] : reasons_) {
    text += fmt::format("{}{} {} ({}{})", text.empty() ? "" : ", ", entry.count, reason,
                        boost::algorithm::join(entry.first, ", "),
                        entry.count > static_cast<std::int64_t>(entry.first.size()) ? ", …" : "");
  }
  return text;
}

nlohmann::json Skipped::json() const {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [reason, entry] : reasons_) all[reason] = {{"count", entry.count}, {"first", entry.first}};
  return all;
}

Skipped Skipped::from_json(const nlohmann::json& json) {
  Skipped skipped;
  for (const auto& [reason, entry] : json.items()) {
    skipped.reasons_[reason] = {.count = Exact(entry.at("count")), .first = entry.at("first")};
  }
  return skipped;
}

}  // namespace lyceum
