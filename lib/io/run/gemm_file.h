#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "kernels/gemm_choice.h"

namespace lyceum {

/// Algorithms for matrix products on GPUs, by the gemm_device() that they were chosen on.
using GemmPins = std::map<std::string, GemmChoices>;

/// "12 algorithms chosen by timing, 3 of them not cuBLASLt's first proposal"
std::string choices_text(const GemmPins& pins);

/// JSON, a line a choice, with the SHA-256 of the choices.
std::string gemm_file_text(const GemmPins& pins);
/// The other way. Throws a bad_input Error that names `file` and what is wrong with it: its digest is looked at first,
/// since a library may trust an algorithm's bits.
GemmPins parse_gemm_file(const std::string& text, const std::string& file);
GemmPins read_gemm_file(const std::filesystem::path& path);

}  // namespace lyceum
