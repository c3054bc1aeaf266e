#pragma once

#include "parallel/pipeline/schedule.h"

namespace lyceum {

/// Calls f(kind, schedule) for every kind of schedule on up to 9 ranks, with odd and even numbers of micro-batches,
/// also fewer than ranks, and up to 4 virtual stages.
template <class F>
void for_each_schedule(F&& f) {
  for (const int ranks : {1, 2, 3, 4, 5, 8, 9}) {
    for (const ScheduleKind kind :
         {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward, ScheduleKind::zero_bubble}) {
      for (const int microbatches : {1, 2, 3, 4, 5, 7, 8, 11, 16, 33}) {
        f(kind, make_schedule(kind, {.ranks = ranks, .microbatches = microbatches}));
      }
    }
    for (const int virtual_stages : {2, 3, 4}) {
      for (const int groups : {1, 2, 3, 5}) {
        f(ScheduleKind::interleaved, make_schedule(ScheduleKind::interleaved, {ranks, virtual_stages, groups * ranks}));
      }
    }
  }
}

}  // namespace lyceum
