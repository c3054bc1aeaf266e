#include "core/system_files.h"

#include <fstream>
#include <limits>

namespace lyceum {

double number_in(const std::filesystem::path& file) {
  std::ifstream stream(file);
  double number = 0;
  return stream >> number ? number : std::numeric_limits<double>::infinity();
}

std::map<std::string, double> numbers_in(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::map<std::string, double> numbers;
  std::string name, rest;
  for (double value = 0; stream >> name; std::getline(stream, rest)) {
    if (!(stream >> value)) {
      stream.clear();
      continue;
    }
    if (name.ends_with(':')) name.pop_back();
    numbers[name] = value;
  }
  return numbers;
}

double value_of(const std::map<std::string, double>& numbers, const std::string& name) {
  const auto found = numbers.find(name);
  return found == numbers.end() ? 0 : found->second;
}

}  // namespace lyceum
