#pragma once

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>
#include <vector>

#include "io/data/tokenizer/json/regex.h"
#include "io/text/text_range.h"

namespace lyceum {

/// A text, valid UTF-8, and the pieces of it that are encoded one by one, in order; none is empty.
struct PieceList {
  std::string text;
  std::vector<TextRange> pieces;
  bool at_start;                    // the first piece begins the whole input
  RegexBudget& budget;              // of the document
  std::vector<TextRange> marked{};  // of the text: sorted, disjoint, carried along by every step
};

/// One step on the way from a text to its pieces.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(PieceList& list) const = 0;
};

struct PreTokenization {
  std::vector<std::unique_ptr<PreTokenizer>> steps;  // in the order in which they are applied
  /// The last step is ByteLevel: the model sees byte_characters() of each piece.
  bool to_bytes = false;
};
/// The `pre_tokenizer` of a tokenizer.json; no step for null. Throws a bad_input Error that names a component that is
/// not supported, exceptions of the library for one that is not as it should be.
PreTokenization read_pre_tokenizer(const nlohmann::json& json);

}  // namespace lyceum
