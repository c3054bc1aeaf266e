#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "parallel/pipeline/schedule_kind.h"

namespace lyceum {

/// A pipeline: `ranks` in a row, each with `virtual_stages` pieces of the model, and the micro-batches of one step.
/// Stage s of all ranks · virtual_stages is on rank s % ranks.
struct PipelineShape {
  int ranks = 1, virtual_stages = 1, microbatches = 1;

  int stages() const { return ranks * virtual_stages; }
  int rank_of(int stage) const { return stage % ranks; }
  /// Which of its rank's pieces a stage is.
  int chunk_of(int stage) const { return stage / ranks; }
  bool operator==(const PipelineShape&) const = default;
};

/// One thing that a rank does for one stage and one micro-batch.
struct Action {
  enum class Kind : std::uint8_t {
    forward,             // F
    backward,            // B: gradients of the input and of the weights at once
    backward_input,      // I: of the input alone
    backward_weight,     // W: of the weights, put off by an I
    send_activation,     // SF: starts sending the stage's result to the next stage
    receive_activation,  // RF: allocates the stage's input; the F that needs it waits for its arrival
    send_gradient,       // SB: starts sending the gradient of the stage's input to the stage before
    receive_gradient,    // RB: allocates the gradient of the stage's result
  };
  Kind kind;
  int stage, microbatch;

  bool computes() const { return kind <= Kind::backward_weight; }
  /// Whether it gives the gradient of the stage's input.
  bool gives_input_gradient() const { return kind == Kind::backward || kind == Kind::backward_input; }
  /// Whether it adds to weight gradients; it is then the last that needs what forward kept.
  bool gives_weight_gradient() const { return kind == Kind::backward || kind == Kind::backward_weight; }
  auto operator<=>(const Action&) const = default;
};

using Program = std::vector<Action>;  // one rank, in order

/// What every rank does in one step: data, which can be printed, checked, simulated and executed.
struct Schedule {
  PipelineShape shape;
  std::vector<Program> programs;  // one a rank
};

/// What a stage gives to its neighbour: its result to the next one, the gradient of its input to the one before.
struct Handover {
  bool gradient;
  int from, to, microbatch;  // stages
  auto operator<=>(const Handover&) const = default;
};
/// What a computing action waits for, and what it makes. None at the ends of the pipeline.
std::optional<Handover> needed_by(const Action& action, const PipelineShape& shape);
std::optional<Handover> made_by(const Action& action, const PipelineShape& shape);
/// What a sending or receiving action moves.
Handover moved_by(const Action& action);
bool crosses_ranks(const Handover& handover, const PipelineShape& shape);
/// Places of all handovers in a table of table_size(shape) elements.
std::size_t table_size(const PipelineShape& shape);
std::size_t place_of(const Handover& handover, const PipelineShape& shape);

/// All forward passes, then all backward passes. [Huang et al. 2019]
Schedule gpipe(const PipelineShape& shape);
/// Each rank starts as many micro-batches as there are stages from it to the end, then does one backward for each
/// forward. [Narayanan et al. 2019; PipeDream-Flush]
Schedule one_forward_one_backward(const PipelineShape& shape);
/// 1F1B over several stages a rank; micro-batches go round in groups of one a rank, so they must divide.
/// [Narayanan et al. 2021]
Schedule interleaved(const PipelineShape& shape);
/// ZB-H1: 1F1B with weight gradients put off, rank r's by r micro-batches. No rank holds more micro-batches than the
/// first one of 1F1B does; of the bubble (p−1)(F+I+W) remains (p−1)(F+I−W). [Qi et al. 2023]
Schedule zero_bubble(const PipelineShape& shape);

/// No backward passes, for validation: all micro-batches through a rank's first stage, then through its next.
Schedule forward_only(const PipelineShape& shape);

/// Throws a usage Error for a shape that the schedule cannot have.
Schedule make_schedule(ScheduleKind kind, const PipelineShape& shape);

}  // namespace lyceum
