#pragma once

#include <boost/program_options.hpp>

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "config/feature.h"

namespace lyceum {

/// The values that a key may have. The defaults allow anything of the member's type.
struct Domain {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;  // the bound itself is not allowed
  std::vector<std::string> names = {};       // of a text: the allowed values; empty: all
  bool required = false;                     // a text must not be empty
  std::string hint = {};                     // printed instead of "text" if some words have a meaning
};

/// A member that is an enumeration, written as one of its names: names_of(E), see config/feature.h.
class EnumMember {
 public:
  template <class E>
  requires std::is_enum_v<E> EnumMember(E* member)
      : EnumMember(
            E{}, [member] { return static_cast<std::size_t>(*member); },
            [member](std::size_t place) { *member = static_cast<E>(place); }) {}
  /// A member that may have no value, which is written as auto.
  template <class E>
  requires std::is_enum_v<E> EnumMember(std::optional<E>* member)
      : EnumMember(
            E{}, [member] { return *member ? static_cast<std::size_t>(**member) + 1 : 0; },
            [member](std::size_t place) {
              *member = place > 0 ? std::optional(static_cast<E>(place - 1)) : std::nullopt;
            }) {
    names_.insert(names_.begin(), "auto");
  }

  const std::vector<std::string>& names() const { return names_; }
  const std::string& name() const { return names_.at(place_()); }
  /// Takes the value of that name, which must be one of names().
  void choose(const std::string& name) const;

 private:
  template <class E>
  EnumMember(E some, std::function<std::size_t()> place, std::function<void(std::size_t)> choose)
      : place_(std::move(place)), choose_(std::move(choose)) {
    for (const char* const name : names_of(some)) names_.emplace_back(name);
  }

  std::vector<std::string> names_;
  std::function<std::size_t()> place_;
  std::function<void(std::size_t)> choose_;
};

/// The member of a Config that a key sets.
using Member = std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                            std::vector<std::int64_t>*, std::vector<std::string>*, EnumMember>;

/// One key: a value of Boost.ProgramOptions that reads and writes its member of a Config and knows what it may be.
/// Integers are at most 2^31 − 1 (seeds: 2^64 − 1), so that products of two sizes never overflow.
class Setting final : public boost::program_options::value_semantic {
 public:
  Setting(Member member, Domain domain) : member_(std::move(member)), domain_(std::move(domain)) {}

  /// Returns what may be written: "integer >= 1", "auto | cpu | cuda".
  std::string name() const override;
  /// Takes no or one token: a missing value is then reported together with all other errors.
  unsigned min_tokens() const override { return 0; }
  unsigned max_tokens() const override { return 1; }
  bool is_composing() const override { return false; }
  bool is_required() const override { return false; }
  bool apply_default(boost::any&) const override { return false; }
  /// Throws a boost::program_options::error that says what is wrong with the text, without naming the key.
  void parse(boost::any& store, const std::vector<std::string>& tokens, bool utf8) const override;
  void notify(const boost::any& store) const override;

  /// Gives the member the value of `text`: parse and notify in one.
  void assign(const std::string& text) const;
  /// Assigns text that another build wrote, whose range may have been different: accepts every finite number.
  void recall(const std::string& text) const;
  /// Returns the member's value, as `assign` reads it back.
  std::string text() const;
  /// Returns why the member's value is not allowed; empty if it is.
  std::string problem() const;

 private:
  Member member_;
  Domain domain_;
};

}  // namespace lyceum
