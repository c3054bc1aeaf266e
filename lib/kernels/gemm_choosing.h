#pragma once

namespace lyceum {

/// How a shape's algorithm is found. `heuristic`: the library's first proposal, the same in every run. `timed`: the
/// fastest of its proposals here and now; runs may then differ in the last bits. No proposal that splits a sum over
/// blocks counts.
enum class GemmChoosing { heuristic, timed };

}  // namespace lyceum
