#include "core/real_text.h"

#include <fmt/format.h>

#include <cmath>

namespace lyceum {

namespace {

template <class Real>
std::string text_of(Real value, std::string_view format) {
  const Real shown = std::isnan(value) ? std::abs(value) : value;
  return fmt::vformat(std::string("{:").append(format) += '}', fmt::make_format_args(shown));
}

}  // namespace

std::string real_text(double value, std::string_view format) { return text_of(value, format); }
std::string real_text(float value, std::string_view format) { return text_of(value, format); }

}  // namespace lyceum
