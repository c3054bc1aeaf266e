#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "core/range.h"

namespace lyceum {

/// A pattern of optim.train_only and similar keys: it names logical tensors, and optionally a range of their rows (the
/// first axis). Names are matched as by fnmatch(3): in "model/layers/*/mlp/gate/weight" * stands for any characters,
/// slashes included, ? for one, [0-9] for one of a set. A range of rows may follow in brackets, counted from 0, without
/// the last: "[8:12]" are the rows 8 to 11, "[8:]" all from 8 on, "[:8]" the first 8.
class TensorPattern {
 public:
  /// Throws a usage Error if the brackets at the end do not contain a range of rows.
  explicit TensorPattern(std::string text);

  /// True if it matches the name of a logical tensor, whatever the rows.
  bool matches(const std::string& name) const;
  /// Returns the rows that it names in a tensor of `rows` rows; may be empty.
  Range rows_of(std::int64_t rows) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_, name_;
  std::int64_t first_ = 0, last_ = -1;  // the rows [first_, last_); −1: to the end
};
/// Parses several patterns. Throws as the constructor does.
std::vector<TensorPattern> tensor_patterns(const std::vector<std::string>& texts);
/// Parses the patterns of a key that names whole tensors. Throws a usage Error if one contains a range of rows. `key`:
/// for the message.
std::vector<TensorPattern> whole_tensor_patterns(const char* key, const std::vector<std::string>& texts);
/// True if one of the patterns matches the name of a logical tensor, whatever the rows.
bool matches_any(const std::vector<TensorPattern>& patterns, const std::string& name);
/// Returns the texts of patterns, separated by commas.
std::string text_of(const std::vector<TensorPattern>& patterns);

/// True if the patterns name rows of any logical tensor of which the parameter holds a slice, even if these rows are on
/// another rank.
bool names_any(const Parameter& parameter, const std::vector<TensorPattern>& patterns);
/// Returns the elements of a parameter that belong to rows which the patterns name, as ascending, disjoint ranges.
std::vector<Range> named_elements(const Parameter& parameter, const std::vector<TensorPattern>& patterns);
/// Returns the elements of a parameter that belong to no such row, without padding, as ascending, disjoint ranges.
std::vector<Range> unnamed_elements(const Parameter& parameter, const std::vector<TensorPattern>& patterns);
/// Returns the elements of [0, size) that are in none of `ranges`, which must be ascending and disjoint.
std::vector<Range> other_elements(std::int64_t size, const std::vector<Range>& ranges);

}  // namespace lyceum
