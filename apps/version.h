#pragma once

#include <string>

namespace lyceum {

/// "0.1.0 (commit 0123456789ab)": "-dirty" behind a commit whose files were changed, no commit where the sources of the
/// build were no git checkout.
std::string program_version();

/// "Release, GNU 12.2.0, CPUs (-march=native), GPUs (80-real 90a-real)".
std::string program_build();

}  // namespace lyceum
