#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "kernels/gemm_choice.h"

namespace lyceum {

/// Algorithms for matrix products on GPUs, keyed by the gemm_device() on which they were chosen.
using GemmPins = std::map<std::string, GemmChoices>;

/// Returns a summary: "12 algorithms chosen by timing, 3 of them not cuBLASLt's first proposal".
std::string choices_text(const GemmPins& pins);

/// Returns the algorithms as JSON, one line per choice, with the SHA-256 of the choices.
std::string gemm_file_text(const GemmPins& pins);
/// Parses the text of gemm_file_text(). Throws a bad_input Error that names `file` and the problem. The digest is
/// verified before the choices are read, since a library may use an algorithm's bits without checking them.
GemmPins parse_gemm_file(const std::string& text, const std::string& file);
/// Reads and parses a file. Throws as read_whole_file() and parse_gemm_file() do.
GemmPins read_gemm_file(const std::filesystem::path& path);

}  // namespace lyceum
