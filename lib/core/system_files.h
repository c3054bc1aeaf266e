#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace lyceum {

/// Returns the number in a file of /proc or /sys; infinity for "max" and for an absent file.
double number_in(const std::filesystem::path& file);
/// Returns the numbers of a file with lines "name value …"; the keys are the names without a colon. Empty for an absent
/// file. Lines without a number are skipped, and units are ignored.
std::map<std::string, double> numbers_in(const std::filesystem::path& file);
/// Returns the number with this name; 0 if there is none.
double value_of(const std::map<std::string, double>& numbers, const std::string& name);

}  // namespace lyceum
