#pragma once

namespace lyceum {

/// Raises the soft limit of open files (RLIMIT_NOFILE) to the hard limit, since a mixture of many sources needs more
/// than the usual 1,024: each token source keeps one to three files open. Does nothing if that fails, because opening a
/// file then reports the limit.
void raise_descriptor_limit();

}  // namespace lyceum
