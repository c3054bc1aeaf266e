#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/data/loader/token_loader.h"

namespace lyceum {

/// How far a run has read a source of its training data.
struct SourceProgress {
  std::string prefix;
  std::int64_t samples = 0;   // the next sample in the order of the source, over all passes
  std::int64_t per_pass = 1;  // samples per pass, as the source was cut when it was last read
  std::string fingerprint{};  // TokenSource::fingerprint(); empty if unknown, as in older checkpoints
  std::int64_t order = -1;    // SampleOrder::source(), which determines its permutations; −1 if unknown
  bool operator==(const SourceProgress&) const = default;
};

/// How far a run has read its training data where a loader begins.
struct DataProgress {
  std::int64_t samples = 0;               // position of the loader's first sample
  std::int64_t tokens = 0;                // tokens of all samples before it
  std::vector<SourceProgress> sources{};  // every source that was read before; others are at their first sample
  bool operator==(const DataProgress&) const = default;
};

/// Returns a loader whose positions begin at progress.samples, and whose sources continue where the run has left them.
/// A source is identified by its prefix or, if nothing was read under that prefix, by its fingerprint: a source with
/// another prefix than before continues, too, with the permutations that it had. A source that is cut into another
/// number of samples per pass than before continues in proportion, at the first sample whose beginning was not passed.
TokenLoader continued(const TokenLoader& loader, const DataProgress& progress);

/// Returns the progress of a run at a position of `loader`, which continued() made from `begin`. Sources that continue
/// under another prefix are contained only with the new one.
DataProgress progress_at(const TokenLoader& loader, const DataProgress& begin, std::int64_t position);

}  // namespace lyceum
