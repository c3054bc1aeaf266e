#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "core/range.h"

namespace lyceum {

/// Logical tensors by their names, as optim.train_only writes them: "model/layers/*/mlp/gate/weight", where * is any
/// characters, ? is one and [0-9] is one of a set; behind it, in brackets, rows of the first axis: "[8:]", "[:8]",
/// "[8:12]".
class TensorPattern {
 public:
  /// Throws a usage Error for brackets that are no rows.
  explicit TensorPattern(std::string text);

  bool matches(const std::string& name) const;
  /// Those that it names of a tensor of `rows` rows; may be empty.
  Range rows_of(std::int64_t rows) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_, name_;
  std::int64_t first_ = 0, last_ = -1;  // −1: to the end
};
std::vector<TensorPattern> tensor_patterns(const std::vector<std::string>& texts);

/// Whether patterns name rows of any tensor that the parameter has a part of, on this rank or on another one.
bool names_any(const Parameter& parameter, const std::vector<TensorPattern>& patterns);
/// Elements of a parameter that belong to rows which patterns name: ascending, apart.
std::vector<Range> named_elements(const Parameter& parameter, const std::vector<TensorPattern>& patterns);
/// The others, padding aside.
std::vector<Range> unnamed_elements(const Parameter& parameter, const std::vector<TensorPattern>& patterns);
/// The elements of a parameter of `size` that are in none of `ranges`, which are ascending and apart.
std::vector<Range> other_elements(std::int64_t size, const std::vector<Range>& ranges);

}  // namespace lyceum
