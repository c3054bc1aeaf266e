#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/tensor.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Sums gradients over a group while backward goes on. A unit is one contiguous tensor of gradients that become final
/// together (a layer's dense ones, say); the sum replaces it in place, without a copy.
///
/// Sums are started in one fixed order on all ranks, from the last unit to the first, as backward makes them final: a
/// unit that is ready before its turn waits for it. They run on a communicator of their own. So ranks may call ready()
/// in different orders, and use the group for other things meanwhile. Once a step: ready() for every unit, finish().
/// On a group of one nothing is sent; the calls are checked all the same.
class GradientBuckets {
 public:
  /// `gradients`: f32 or f64, [any], one a unit, the same sizes on all ranks; kept, never replaced. `group` must
  /// outlive this. A unit larger than `bucket_bytes` is summed in several requests of at most that size.
  GradientBuckets(std::vector<Tensor> gradients, const ProcessGroup& group, std::size_t bucket_bytes);

  /// The unit's gradients are final: nothing may touch them before finish(). Throws on the second call in a step.
  void ready(std::size_t unit);
  /// Moves sums that were started on; cheap enough to call between any two operations of backward.
  void progress();
  /// Waits until every unit holds its sum; a new step may begin. Throws where a unit was never ready.
  void finish();

  std::size_t units() const { return gradients_.size(); }
  /// Bytes of gradients that this rank handed to sums so far.
  std::int64_t bytes_summed() const { return group_.traffic().all_reduce; }

 private:
  struct Bucket {
    std::size_t unit;
    Tensor values;
  };
  void start_what_may();

  std::vector<Tensor> gradients_;
  std::vector<Bucket> buckets_;  // in the order in which their sums start
  std::vector<bool> ready_;      // by unit
  ProcessGroup group_;
  std::size_t started_ = 0;        // buckets so far in this step
  std::deque<Pending> under_way_;  // oldest first
};

}  // namespace lyceum
