#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// The places at which a document may be cut, between two characters of a text.
struct CutPlaces {
  bool words = false;  // between an ASCII letter and a space
  bool lines = false;  // between a newline and a visible ASCII character other than /, which o200k joins to newlines
};
/// Returns the places that are in a or in b.
inline CutPlaces operator|(CutPlaces a, CutPlaces b) {
  return {.words = a.words || b.words, .lines = a.lines || b.lines};
}

/// True if `c` is an ASCII letter.
inline bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
/// True if a document may be cut between a newline and `c`.
inline bool may_begin_part(char c) { return c > ' ' && c < 0x7F && c != '/'; }

/// Upper bounds of what a regular expression matches.
struct RegexShape {
  bool may_be_empty = true;     // a match may be empty
  CutPlaces spans{true, true};  // a match may extend over such a place
};

/// The characters by which a text that is compared with a document's may stand for a space and for a newline of it.
struct SpaceForms {
  std::vector<std::string> spaces{" "}, newlines{"\n"};
};
/// Returns all the forms that they have in a tokenizer.json: themselves, the mark U+2581, and their characters of
/// byte_characters().
const SpaceForms& all_space_forms();

/// Returns the places that a text extends over.
CutPlaces spans_of(std::string_view text, const SpaceForms& forms);

/// Analyses a valid expression in the syntax of Oniguruma. What lookarounds look at is not part of a match, but they
/// count as extending over a place if it is within what they look at. An expression with constructs that are not
/// analysed, such as backreferences, may match anything.
RegexShape shape_of(const std::string& pattern, const SpaceForms& forms = {});

}  // namespace lyceum
