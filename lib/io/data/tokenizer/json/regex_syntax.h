#pragma once

#include <string>

namespace lyceum {

/// Rewrites a regular expression for `tokenizers`, which uses Oniguruma 6.9.10, so that it matches the same with older
/// versions of the library:
///
/// - [:punct:] and PosixPunct become \p{P} and \p{S}, which they do not mean before 6.9.9.
/// - \w, \d and the general categories include the characters that Unicode 15 and 16 added.
///
/// Also rewrites it so that its steps can be counted. Oniguruma itself counts only backtracking steps.
///
/// - The callout `barrier` is inserted after a repetition. It prevents Oniguruma from making the repetition possessive,
///   as it does for a*z, which is then searched without backtracking.
/// - The callout `counter` is inserted after everything that is not backtracked into (possessive repetitions, and
///   lookaheads and atomic groups that contain a repetition), and before every backreference.
///
/// Throws a bad_input Error that names the part that cannot be rewritten.
std::string rewrite_regex(const std::string& pattern, const std::string& counter, const std::string& barrier);

}  // namespace lyceum
