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

Skipped::Some& Skipped::of(const std::string& reason) {
  const bool is_known = reasons_.contains(reason) || reasons_.size() < most_reasons;
  return reasons_[is_known ? reason : "for other reasons"];
}

void Skipped::add(const std::string& reason, std::string name) {
  Some& some = of(reason);
  ++some.count;
  if (some.first.size() < few) some.first.push_back(std::move(name));
}

void Skipped::add(const Skipped& later) {
  for (const auto& [reason, some] : later.reasons_) {
    Some& own = of(reason);
    own.count += some.count;
    for (std::size_t i = 0; i < some.first.size() && own.first.size() < few; ++i) own.first.push_back(some.first[i]);
  }
}

std::int64_t Skipped::count() const {
  std::int64_t sum = 0;
  for (const auto& [reason, some] : reasons_) sum += some.count;
  return sum;
}

std::string Skipped::text() const {
  std::string text;
  for (const auto& [reason, some] : reasons_) {
    text += fmt::format("{}{} {} ({}{})", text.empty() ? "" : ", ", some.count, reason,
                        boost::algorithm::join(some.first, ", "),
                        some.count > static_cast<std::int64_t>(some.first.size()) ? ", …" : "");
  }
  return text;
}

nlohmann::json Skipped::json() const {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [reason, some] : reasons_) all[reason] = {{"count", some.count}, {"first", some.first}};
  return all;
}

Skipped Skipped::from_json(const nlohmann::json& json) {
  Skipped skipped;
  for (const auto& [reason, some] : json.items()) {
    skipped.reasons_[reason] = {.count = Exact(some.at("count")), .first = some.at("first")};
  }
  return skipped;
}

}  // namespace lyceum
