#pragma once

#include <string>

namespace lyceum {

/// Rewrites a regular expression that `tokenizers` reads, with Oniguruma 6.9.10, for older versions of the library, so
/// that it matches the same:
///   - [:punct:] and PosixPunct are \p{P} and \p{S}, which they are not before 6.9.9,
///   - \w, \d and the general categories contain the characters of Unicode 15 and 16,
/// and so that its steps can be counted. Oniguruma counts the steps back only:
///   - the callout `barrier` after a repetition keeps it from being made possessive: a*z is searched without steps
///   back,
///   - the callout `counter` follows what is never stepped back into (possessive repetitions, and lookaheads and atomic
///     groups that repeat something) and precedes every backreference.
/// Throws a bad_input Error that names what cannot be rewritten.
std::string rewritten_regex(const std::string& pattern, const std::string& counter, const std::string& barrier);

}  // namespace lyceum
