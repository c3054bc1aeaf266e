#pragma once

namespace lyceum {

/// The method of choosing an algorithm for a GEMM shape. `heuristic` takes the library's first proposal, which is the
/// same in every run. `timed` measures the proposals and takes the fastest; runs may then differ in the last bits.
/// Proposals that split a sum over thread blocks are never used.
enum class GemmChoiceMethod { heuristic, timed };

}  // namespace lyceum
