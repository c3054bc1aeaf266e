#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "parallel/pipeline/schedule_kind.h"

namespace lyceum {

/// The size of a pipeline: `ranks` ranks with `virtual_stages` stages each, and the number of micro-batches per step.
/// Stage s of all ranks · virtual_stages stages is on rank s % ranks.
struct PipelineShape {
  int ranks = 1, virtual_stages = 1, microbatches = 1;

  int stages() const { return ranks * virtual_stages; }
  int rank_of(int stage) const { return stage % ranks; }
  /// Returns the index of a stage among the stages of its rank.
  int chunk_of(int stage) const { return stage / ranks; }
  bool operator==(const PipelineShape&) const = default;
};

/// One action of a rank, for one stage and one micro-batch.
struct Action {
  enum class Kind : std::uint8_t {
    forward,             // F
    backward,            // B: computes the gradients of the input and of the weights
    backward_input,      // I: computes the gradient of the input only
    backward_weight,     // W: computes the gradients of the weights, after an I
    send_activation,     // SF: starts to send the stage's result to the next stage
    receive_activation,  // RF: allocates the stage's input and starts to receive it; the F that needs it waits
    send_gradient,       // SB: starts to send the gradient of the stage's input to the previous stage
    receive_gradient,    // RB: allocates the gradient of the stage's result and starts to receive it
  };
  Kind kind;
  int stage, microbatch;

  bool computes() const { return kind <= Kind::backward_weight; }
  /// True if the action computes the gradient of the stage's input.
  bool gives_input_gradient() const { return kind == Kind::backward || kind == Kind::backward_input; }
  /// True if the action adds to weight gradients. It is the last action that needs the activations kept by forward.
  bool gives_weight_gradient() const { return kind == Kind::backward || kind == Kind::backward_weight; }
  /// Returns by how much the action changes the number of micro-batches whose activations the rank keeps: 1, −1 or 0.
  int in_flight_change() const {
    if (kind == Kind::forward) return 1;
    return gives_weight_gradient() ? -1 : 0;
  }
  auto operator<=>(const Action&) const = default;
};

using Program = std::vector<Action>;  // the actions of one rank, in order

/// The programs of all ranks for one step. It is plain data that can be printed, checked, simulated and executed.
struct Schedule {
  PipelineShape shape;
  std::vector<Program> programs;  // [ranks]
};

/// Data that a stage passes to a neighbour: its result to the next stage, or the gradient of its input to the previous
/// one.
struct Handover {
  bool gradient;
  int from, to, microbatch;  // `from` and `to` are stages
  auto operator<=>(const Handover&) const = default;
};
/// needed_by() returns the data that an action needs from another stage, made_by() the data that it produces for
/// another stage. Both return nothing for a W, for sends and receives, and where the pipeline ends: the first stage's F
/// and the last stage's B or I need nothing, the last stage's F and the first stage's B or I produce nothing.
std::optional<Handover> needed_by(const Action& action, const PipelineShape& shape);
std::optional<Handover> made_by(const Action& action, const PipelineShape& shape);
/// Returns the handover that a sending or receiving action transfers. Throws for an action that computes.
Handover moved_by(const Action& action);
/// True if the two stages are on different ranks.
bool crosses_ranks(const Handover& handover, const PipelineShape& shape);
/// table_index() numbers all handovers of a pipeline from 0 to table_size() − 1, for use as indices of a table.
std::size_t table_size(const PipelineShape& shape);
std::size_t table_index(const Handover& handover, const PipelineShape& shape);

/// Every rank runs all forward passes, then all backward passes. [Huang et al. 2019]
///
/// Each schedule is shown for 3 ranks and 4 micro-batches, with one column per unit of time; F, I and W take 1 unit,
/// and B takes 2.
///
///     row 0 | F0 F1 F2 F3  .  .  .  .  .  . B0 -- B1 -- B2 -- B3 --
///     row 1 |  . F0 F1 F2 F3  .  .  . B0 -- B1 -- B2 -- B3 --  .  .
///     row 2 |  .  . F0 F1 F2 F3 B0 -- B1 -- B2 -- B3 --  .  .  .  .
Schedule gpipe(const PipelineShape& shape);
/// 1F1B: rank r of p first runs p − r − 1 forward passes (warm-up), then alternates forward and backward passes (steady
/// state), then runs the remaining backward passes (cool-down). [Narayanan et al. 2019; PipeDream-Flush]
///
///     row 0 | F0 F1 F2  .  .  .  . B0 -- F3 B1 --  . B2 --  . B3 --
///     row 1 |  . F0 F1  .  . B0 -- F2 B1 -- F3 B2 --  . B3 --  .  .
///     row 2 |  .  . F0 B0 -- F1 B1 -- F2 B2 -- F3 B3 --  .  .  .  .
Schedule one_forward_one_backward(const PipelineShape& shape);
/// 1F1B with several stages per rank. Micro-batches pass through the stages of a rank in groups of `ranks`, which must
/// divide their number. [Narayanan et al. 2021] The programs of 2 ranks with 2 stages each
/// (2F0 is F0 of stage 2):
///
///     rank 0: 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3
///     rank 1: 1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3
Schedule interleaved(const PipelineShape& shape);
/// ZB-H1: 1F1B with delayed weight gradients; rank r delays them by r micro-batches. No rank holds more micro-batches
/// than rank 0 of 1F1B does. The bubble shrinks from (p−1)(F+I+W) to (p−1)(F+I−W). [Qi et al. 2023]
///
///     row 0 | F0 F1 F2  .  . I0 W0 F3 I1 W1 I2 W2 I3 W3
///     row 1 |  . F0 F1  . I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
///     row 2 |  .  . F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
Schedule zero_bubble(const PipelineShape& shape);

/// Forward passes only, for validation: all micro-batches pass through a rank's first stage, then through its next one.
Schedule forward_only(const PipelineShape& shape);

/// Makes a schedule of this kind. Throws a usage Error if the kind does not permit the shape.
Schedule make_schedule(ScheduleKind kind, const PipelineShape& shape);

}  // namespace lyceum
