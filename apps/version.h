#pragma once

#include <string>

namespace lyceum {

/// Returns "0.1.0 (commit 0123456789ab)", with "-dirty" after the commit if files were changed, and without a commit if
/// the sources were not a git checkout.
std::string program_version();

/// Returns all properties of a build that may change numbers: kind, flags, compiler, processors, instruction sets.
/// Example: "Release (-O3 -DNDEBUG), GNU 12.2.0, CPUs (-march=native), GPUs (80 90a-real), x86-64 with AVX2 FMA".
std::string program_build();

}  // namespace lyceum
