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

/// The allowed values of a key. By default any value of the member's type is allowed.
struct Domain {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;  // true: the bound itself is not allowed
  std::vector<std::string> names = {};       // for a text, its allowed values; empty: all
  bool required = false;                     // true: a text must not be empty
  std::size_t longest = 4095;                // bytes of a text, by default those of a path
  /// Description of a text's values, printed instead of "text"
  std::string hint = {};
};

/// A member of enumeration type. Its values are written as names_of(E), see config/feature.h.
class EnumMember {
 public:
  template <class E>
  requires std::is_enum_v<E> EnumMember(E* member)
      : EnumMember(
            E{}, [member] { return static_cast<std::size_t>(*member); },
            [member](std::size_t index) { *member = static_cast<E>(index); }) {}
  /// An optional member. No value is written as "auto".
  template <class E>
  requires std::is_enum_v<E> EnumMember(std::optional<E>* member)
      : EnumMember(
            E{}, [member] { return *member ? static_cast<std::size_t>(**member) + 1 : 0; },
            [member](std::size_t index) {
              *member = index > 0 ? std::optional(static_cast<E>(index - 1)) : std::nullopt;
            }) {
    names_.insert(names_.begin(), "auto");
  }

  /// Returns the names of all values.
  const std::vector<std::string>& names() const { return names_; }
  /// Returns the name of the member's current value.
  const std::string& name() const { return names_.at(index_()); }
  /// Sets the member to the value with that name, which must be one of names().
  void choose(const std::string& name) const;

 private:
  template <class E>
  EnumMember(E some, std::function<std::size_t()> index, std::function<void(std::size_t)> choose)
      : index_(std::move(index)), choose_(std::move(choose)) {
    for (const char* const name : names_of(some)) names_.emplace_back(name);
  }

  std::vector<std::string> names_;
  std::function<std::size_t()> index_;
  std::function<void(std::size_t)> choose_;
};

/// The member of a Config that a key sets. The Config must outlive it.
using Member = std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                            std::vector<std::int64_t>*, std::vector<std::string>*, EnumMember>;

/// The value of one key, as an option of Boost.ProgramOptions: reads and writes its member of a Config and knows its
/// allowed values. Integers are at most 2^31 − 1 (seeds: 2^64 − 1), so that products of two sizes do not overflow.
class Setting final : public boost::program_options::value_semantic {
 public:
  Setting(Member member, Domain domain) : member_(std::move(member)), domain_(std::move(domain)) {}

  /// Returns a description of the allowed values: "integer >= 1", "auto | cpu | cuda".
  std::string name() const override;
  /// Accepts zero or one token, so that a missing value is reported together with all other errors.
  unsigned min_tokens() const override { return 0; }
  unsigned max_tokens() const override { return 1; }
  bool is_composing() const override { return false; }
  bool is_required() const override { return false; }
  bool apply_default(boost::any&) const override { return false; }
  /// Checks the text and stores its value in `store`. Throws a boost::program_options::error that describes the mistake
  /// without naming the key.
  void parse(boost::any& store, const std::vector<std::string>& tokens, bool utf8) const override;
  /// Sets the member to the value that parse() stored.
  void notify(const boost::any& store) const override;

  /// Sets the member to the value of `text`: parse() and notify() in one. Throws as parse() does.
  void assign(const std::string& text) const;
  /// Sets the member to the value of text that another build wrote. Accepts every finite number, since that build may
  /// have allowed another range. Throws as parse() does if the text is not a value of the type.
  void assign_leniently(const std::string& text) const;
  /// Returns the member's value as text that assign() accepts.
  std::string text() const;
  /// Returns the reason why the member's value is not allowed, such as "must be >= 1"; empty if it is allowed.
  std::string problem() const;

 private:
  Member member_;
  Domain domain_;
};

}  // namespace lyceum
