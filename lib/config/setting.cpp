#include "config/setting.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>

#include "config/ini_file.h"
#include "core/error.h"
#include "core/printable.h"
#include "io/text/utf8.h"

namespace lyceum {
namespace {

namespace po = boost::program_options;
using List = std::vector<std::int64_t>;
using Texts = std::vector<std::string>;

constexpr double smallest_number = 1e-30;  // smallest magnitude other than 0; much smaller numbers are 0 as float
constexpr double largest_integer = std::numeric_limits<std::int32_t>::max();

template <class Number>
void read_number(std::string_view text, Number& value, std::string_view kind) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range)
    throw po::error(fmt::format("'{}' is too large or too small", excerpt(text)));
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw po::error(fmt::format("'{}' is not {}", excerpt(text), kind));
  }
}

void read(std::string_view text, std::integral auto& value) { read_number(text, value, "an integer"); }
void read(std::string_view text, std::uint64_t& value) { read_number(text, value, "an integer >= 0"); }
void read(std::string_view text, double& value) { read_number(text, value, "a number"); }

void read(std::string_view text, bool& value) {
  value = text == "true" || text == "1" || text == "yes";
  if (!value && text != "false" && text != "0" && text != "no") {
    throw po::error(fmt::format("'{}' is not true or false", excerpt(text)));
  }
}

void read(std::string_view text, std::string& value) { value = text; }

template <class Value>
void read(std::string_view text, std::vector<Value>& value) {
  value.clear();
  if (trimmed(text).empty()) return;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    read(trimmed(text.substr(begin, end - begin)), value.emplace_back());
    begin = end + 1;
  }
}

std::string write(bool value) { return value ? "true" : "false"; }
std::string write(const std::string& value) { return value; }
template <class Number>
std::string write(Number value) {
  return fmt::format("{}", value);  // the shortest text with the same value
}

template <class Value>
std::string joined(const std::vector<Value>& values, std::string_view separator) {
  std::string text;
  for (const Value& value : values) text.append(text.empty() ? "" : separator).append(write(value));
  return text;
}
template <class Value>
std::string write(const std::vector<Value>& value) {
  return joined(value, ",");
}

std::string range(const Domain& domain) {
  const bool above = std::isfinite(domain.low), below = std::isfinite(domain.high);
  if (above && below) {
    return fmt::format("in {}{}, {}{}", domain.low_open ? '(' : '[', domain.low, domain.high,
                       domain.high_open ? ')' : ']');
  }
  if (above) return fmt::format("{} {}", domain.low_open ? ">" : ">=", domain.low);
  if (below) return fmt::format("{} {}", domain.high_open ? "<" : "<=", domain.high);
  return {};
}

std::string outside(const Domain& domain, double value) {
  const bool inside = (domain.low_open ? value > domain.low : value >= domain.low) &&
                      (domain.high_open ? value < domain.high : value <= domain.high);
  return inside ? std::string() : fmt::format("must be {}", range(domain));
}

std::string problem_of(const Domain&, bool) { return {}; }
std::string problem_of(const Domain&, std::uint64_t) { return {}; }

std::string problem_of(const Domain& domain, double value) {
  if (!std::isfinite(value)) return "must be finite";
  const std::string problem = outside(domain, value);
  if (!problem.empty() || value == 0 || std::abs(value) >= smallest_number) return problem;
  return fmt::format("must be {} or more", smallest_number) + (domain.low > 0 || domain.low_open ? "" : ", or 0");
}

std::string problem_of(const Domain& domain, std::integral auto value) {
  const auto number = static_cast<double>(value);
  if (!(std::abs(number) <= largest_integer)) return fmt::format("must be at most {}", largest_integer);
  return outside(domain, number);
}

std::string problem_of(const Domain& domain, const List& values) {
  for (const std::int64_t value : values) {
    const std::string problem = problem_of(domain, value);
    if (!problem.empty()) return fmt::format("{} {}", value, problem);
  }
  return {};
}

/// Checks that a text is allowed and can be written to an INI file and read back unchanged.
std::string problem_of(const Domain& domain, const std::string& value) {
  if (!domain.names.empty() && std::find(domain.names.begin(), domain.names.end(), value) == domain.names.end()) {
    return fmt::format("must be {}{}", domain.names.size() > 1 ? "one of " : "", joined(domain.names, ", "));
  }
  if (domain.required && value.empty()) return "must not be empty";
  if (value.size() > domain.longest) return fmt::format("must have at most {} bytes", domain.longest);
  const std::string characters = replace_invalid_utf8(value);  // file names may contain any bytes
  if (printable(characters) != characters) return "must not contain control characters";
  if (trimmed(value).size() != value.size()) return "must not begin or end with a space";
  const std::string padded = ' ' + value;
  if (padded.find(" #") != std::string::npos || padded.find(" ;") != std::string::npos) {
    return "must not contain # or ; at the beginning of a word, where a comment would begin";
  }
  return {};
}

/// Returns what is wrong with a value that is given now, in addition to problem_of(); values of earlier runs are read
/// as they are.
std::string given_problem(const auto&) { return {}; }
std::string given_problem(const std::string& value) {
  const std::string padded = ' ' + value + ' ';
  const bool of_home = padded.find(" ~/") != std::string::npos || padded.find(" ~ ") != std::string::npos;
  return of_home ? "must not contain a path that begins with ~, which only a shell would replace by a folder" : "";
}

std::string problem_of(const Domain&, const Texts& values) {
  for (const std::string& value : values) {
    if (value.empty()) return "must not have an empty name between commas";
    const std::string problem = problem_of(Domain{}, value);
    if (!problem.empty()) return problem;
  }
  return {};
}

/// Returns the reason why a value written by another build is not accepted, or an empty text. Ranges are not checked.
std::string lenient_problem(const Domain&, double value) { return std::isfinite(value) ? "" : "must be finite"; }
std::string lenient_problem(const Domain&, std::integral auto) { return {}; }
std::string lenient_problem(const Domain&, const List&) { return {}; }
std::string lenient_problem(const Domain& domain, const std::string& value) { return problem_of(domain, value); }
std::string lenient_problem(const Domain& domain, const Texts& values) { return problem_of(domain, values); }

std::string kind_text(const Domain& domain, const std::string&) {
  if (!domain.names.empty()) return joined(domain.names, " | ");
  return domain.hint.empty() ? "text" : domain.hint;
}
std::string kind_text(const Domain&, bool) { return "true | false"; }
std::string kind_text(const Domain&, std::uint64_t) { return "integer >= 0"; }
std::string kind_text(const Domain& domain, double) { return fmt::format("number {}", range(domain)); }
std::string kind_text(const Domain& domain, std::integral auto) { return fmt::format("integer {}", range(domain)); }
std::string kind_text(const Domain& domain, const Texts&) { return domain.hint; }
std::string kind_text(const Domain& domain, const List&) {
  return fmt::format("integers {}, comma-separated", range(domain));
}

/// value_of() reads a member, set() writes it; the value of an enumeration is its name.
template <class Value>
Value value_of(const Value* member) {
  return *member;
}
std::string value_of(const EnumMember& member) { return member.name(); }
template <class Value>
void set(Value* member, const Value& value) {
  *member = value;
}
void set(const EnumMember& member, const std::string& name) { member.choose(name); }

}  // namespace

void EnumMember::choose(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  require(found != names_.end(), "'{}' is not a value of this key", name);
  choose_(static_cast<std::size_t>(found - names_.begin()));
}

std::string Setting::name() const {
  return std::visit([&](const auto& member) { return kind_text(domain_, value_of(member)); }, member_);
}

std::string Setting::text() const {
  return std::visit([](const auto& member) { return write(value_of(member)); }, member_);
}

std::string Setting::problem() const {
  return std::visit([&](const auto& member) { return problem_of(domain_, value_of(member)); }, member_);
}

void Setting::assign_leniently(const std::string& text) const {
  std::visit(
      [&](const auto& member) {
        auto value = value_of(member);
        read(text, value);
        const std::string problem = lenient_problem(domain_, value);
        if (!problem.empty()) throw po::error(problem);
        set(member, value);
      },
      member_);
}

void Setting::parse(boost::any& store, const std::vector<std::string>& tokens, bool) const {
  if (tokens.empty()) throw po::error("a value is missing");
  std::visit(
      [&](const auto& member) {
        auto value = value_of(member);
        read(tokens.front(), value);
        std::string problem = problem_of(domain_, value);
        if (problem.empty()) problem = given_problem(value);
        if (!problem.empty()) throw po::error(problem);
        store = value;
      },
      member_);
}

void Setting::notify(const boost::any& store) const {
  std::visit([&](const auto& member) { set(member, boost::any_cast<decltype(value_of(member))>(store)); }, member_);
}

void Setting::assign(const std::string& text) const {
  boost::any value;
  parse(value, {text}, true);
  notify(value);
}

}  // namespace lyceum
