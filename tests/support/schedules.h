#pragma once

#include <string_view>

#include "parallel/pipeline/schedule.h"

namespace lyceum {

/// Calls f(name, schedule) for every schedule on up to 9 ranks, with odd numbers of micro-batches, fewer of them than
/// ranks, and up to 4 virtual stages.
template <class F>
void for_each_schedule(F&& f) {
  for (const int ranks : {1, 2, 3, 4, 5, 8, 9}) {
    for (const std::string_view name : {"gpipe", "1f1b", "zb-h1"}) {
      for (const int microbatches : {1, 2, 3, 4, 5, 7, 8, 11, 16, 33}) {
        f(name, make_schedule(name, {.ranks = ranks, .microbatches = microbatches}));
      }
    }
    for (const int virtual_stages : {2, 3, 4}) {
      for (const int groups : {1, 2, 3, 5}) {
        f("interleaved", make_schedule("interleaved", {ranks, virtual_stages, groups * ranks}));
      }
    }
  }
}

}  // namespace lyceum
