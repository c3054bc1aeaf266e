#pragma once

#include <string>

namespace lyceum {

/// "0.1.0 (commit 0123456789ab)": "-dirty" behind a commit whose files were changed, no commit where the sources of the
/// build were no git checkout.
std::string program_version();

/// All of a build that may change numbers: kind, flags, compiler, processors, instruction sets. "Release (-O3
/// -DNDEBUG), GNU 12.2.0, CPUs (-march=native), GPUs (80-real 90a-real), x86-64 with AVX2 FMA".
std::string program_build();

}  // namespace lyceum
