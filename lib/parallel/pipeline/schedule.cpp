#include "parallel/pipeline/schedule.h"

#include <algorithm>

#include "core/error.h"

namespace lyceum {

using Kind = Action::Kind;

std::optional<Handover> needed_by(const Action& action, const PipelineShape& shape) {
  if (action.kind == Kind::forward && action.stage > 0) {
    return Handover{.gradient = false, .from = action.stage - 1, .to = action.stage, .microbatch = action.microbatch};
  }
  if (action.gives_input_gradient() && action.stage + 1 < shape.stages()) {
    return Handover{.gradient = true, .from = action.stage + 1, .to = action.stage, .microbatch = action.microbatch};
  }
  return {};
}

std::optional<Handover> made_by(const Action& action, const PipelineShape& shape) {
  if (action.kind == Kind::forward && action.stage + 1 < shape.stages()) {
    return Handover{.gradient = false, .from = action.stage, .to = action.stage + 1, .microbatch = action.microbatch};
  }
  if (action.gives_input_gradient() && action.stage > 0) {
    return Handover{.gradient = true, .from = action.stage, .to = action.stage - 1, .microbatch = action.microbatch};
  }
  return {};
}

Handover moved_by(const Action& action) {
  const int stage = action.stage, microbatch = action.microbatch;
  switch (action.kind) {
    case Kind::send_activation: return {false, stage, stage + 1, microbatch};
    case Kind::receive_activation: return {false, stage - 1, stage, microbatch};
    case Kind::send_gradient: return {true, stage, stage - 1, microbatch};
    case Kind::receive_gradient: return {true, stage + 1, stage, microbatch};
    default: fail(ExitCode::failed, "an action that computes has no transfer");
  }
}

bool crosses_ranks(const Handover& handover, const PipelineShape& shape) {
  return shape.rank_of(handover.from) != shape.rank_of(handover.to);
}

std::size_t table_size(const PipelineShape& shape) {
  return 2 * static_cast<std::size_t>(shape.stages()) * static_cast<std::size_t>(shape.microbatches);
}

std::size_t table_index(const Handover& handover, const PipelineShape& shape) {
  const int row = (handover.gradient ? shape.stages() : 0) + handover.to;
  return static_cast<std::size_t>(row) * static_cast<std::size_t>(shape.microbatches) +
         static_cast<std::size_t>(handover.microbatch);
}

namespace {

void require_sizes(const PipelineShape& shape) {
  require_usage(shape.ranks >= 1 && shape.virtual_stages >= 1 && shape.microbatches >= 1,
                "a pipeline of {} ranks with {} virtual stages each and {} micro-batches: all must be 1 or more",
                shape.ranks, shape.virtual_stages, shape.microbatches);
}

void require_one_stage_a_rank(const PipelineShape& shape, ScheduleKind kind) {
  require_sizes(shape);
  require_usage(shape.virtual_stages == 1,
                "the schedule {} has one stage per rank, parallel.virtual_stages is {}: set it to 1, or "
                "parallel.schedule = interleaved",
                name_of(kind), shape.virtual_stages);
}

/// Makes a schedule whose programs are program_of(rank).
template <class F>
Schedule for_each_rank(const PipelineShape& shape, F&& program_of) {
  Schedule schedule{.shape = shape, .programs = {}};
  for (int rank = 0; rank < shape.ranks; ++rank) schedule.programs.push_back(program_of(rank));
  return schedule;
}

/// Calls forward(k) for the first `ahead` values of k, then forward and backward calls alternately, then backward(k)
/// for the remaining ones, with k = 0 … count − 1 for both.
template <class Forward, class Backward>
void alternate(int ahead, int count, Forward&& forward, Backward&& backward) {
  for (int k = 0; k < count + ahead; ++k) {
    if (k < count) forward(k);
    if (k >= ahead) backward(k - ahead);
  }
}

}  // namespace

Schedule gpipe(const PipelineShape& shape) {
  require_one_stage_a_rank(shape, ScheduleKind::gpipe);
  return for_each_rank(shape, [&](int rank) {
    Program program;
    for (int m = 0; m < shape.microbatches; ++m) program.push_back({Kind::forward, rank, m});
    for (int m = 0; m < shape.microbatches; ++m) program.push_back({Kind::backward, rank, m});
    return program;
  });
}

Schedule one_forward_one_backward(const PipelineShape& shape) {
  require_one_stage_a_rank(shape, ScheduleKind::one_forward_one_backward);
  return for_each_rank(shape, [&](int rank) {
    Program program;
    alternate(
        std::min(shape.ranks - rank - 1, shape.microbatches), shape.microbatches,
        [&](int m) {
          program.push_back({Kind::forward, rank, m});
        },
        [&](int m) {
          program.push_back({Kind::backward, rank, m});
        });
    return program;
  });
}

Schedule interleaved(const PipelineShape& shape) {
  require_sizes(shape);
  const int ranks = shape.ranks, chunks = shape.virtual_stages;
  require_usage(chunks >= 2,
                "the schedule interleaved has several stages per rank, parallel.virtual_stages is {}: set it to 2 or "
                "more, or parallel.schedule = 1f1b",
                chunks);
  require_usage(shape.microbatches % ranks == 0,
                "the schedule interleaved takes micro-batches in groups of parallel.pipeline = {}, which does not "
                "divide {}: change batch.global or batch.micro, or parallel.schedule",
                ranks, shape.microbatches);
  // The k-th pass of a rank, in the order that all ranks share: a group of micro-batches passes through one chunk
  // (stage of this rank), then through the next.
  const auto action = [&](Kind kind, int rank, int k) {
    const int group = k / (ranks * chunks), within = k % (ranks * chunks);
    const int chunk = kind == Kind::forward ? within / ranks : chunks - 1 - within / ranks;
    return Action{kind, chunk * ranks + rank, group * ranks + within % ranks};
  };
  const int passes = shape.microbatches * chunks;
  return for_each_rank(shape, [&](int rank) {
    Program program;
    alternate(
        std::min(2 * (ranks - rank - 1) + (chunks - 1) * ranks, passes), passes,
        [&](int k) { program.push_back(action(Kind::forward, rank, k)); },
        [&](int k) { program.push_back(action(Kind::backward, rank, k)); });
    return program;
  });
}

Schedule zero_bubble(const PipelineShape& shape) {
  require_one_stage_a_rank(shape, ScheduleKind::zero_bubble);
  return for_each_rank(shape, [&](int rank) {
    Program program;
    alternate(
        std::min(shape.ranks - rank - 1, shape.microbatches), shape.microbatches,
        [&](int m) {
          program.push_back({Kind::forward, rank, m});
        },
        [&](int m) {
          program.push_back({Kind::backward_input, rank, m});
          if (m >= rank) program.push_back({Kind::backward_weight, rank, m - rank});
        });
    for (int m = std::max(shape.microbatches - rank, 0); m < shape.microbatches; ++m) {
      program.push_back({Kind::backward_weight, rank, m});
    }
    return program;
  });
}

Schedule forward_only(const PipelineShape& shape) {
  require_sizes(shape);
  return for_each_rank(shape, [&](int rank) {
    Program program;
    for (int stage = rank; stage < shape.stages(); stage += shape.ranks) {
      for (int m = 0; m < shape.microbatches; ++m) program.push_back({Kind::forward, stage, m});
    }
    return program;
  });
}

Schedule make_schedule(ScheduleKind kind, const PipelineShape& shape) {
  constexpr std::array generators{gpipe, one_forward_one_backward, interleaved, zero_bubble};
  static_assert(generators.size() == schedule_names.size());
  return generators.at(static_cast<std::size_t>(kind))(shape);
}

}  // namespace lyceum
