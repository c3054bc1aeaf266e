#pragma once

#include <array>
#include <concepts>
#include <span>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/profile.h"
#include "core/tensor.h"
#include "parallel/comm/turns.h"
#include "parallel/pipeline/schedule_text.h"
#include "parallel/pipeline/timeline.h"

namespace lyceum {

/// One stage of a model, as seen by the executor. All tensors that pass between stages have the same shape and type.
/// - forward(microbatch, x) → y. The first stage's x is undefined; the last stage's y is ignored.
/// - backward(microbatch, dy) → dx. Also adds to the weight gradients. The last stage's dy is undefined; the first
///   stage's dx is ignored.
/// - backward_input(microbatch, dy) → dx, and later backward_weight(microbatch): used instead of backward by schedules
///   that delay weight gradients.
template <class S>
concept PipelineStage = requires(S& stage, int microbatch, const Tensor& tensor) {
  { stage.forward(microbatch, tensor) } -> std::same_as<Tensor>;
  { stage.backward(microbatch, tensor) } -> std::same_as<Tensor>;
  { stage.backward_input(microbatch, tensor) } -> std::same_as<Tensor>;
  stage.backward_weight(microbatch);
};

/// Messages between the ranks of a pipeline: a ProcessGroup with its ranks in the order of the stages, or a substitute
/// in tests. Both functions start a message without waiting. The tensor is in use until wait() has returned or test()
/// has returned true. Messages from one rank to another keep their order.
template <class C>
concept PipelineChannel = requires(const C& channel, const Tensor& tensor, int rank) {
  { channel.send_async(tensor, rank).test() } -> std::same_as<bool>;
  { channel.receive_async(tensor, rank).test() } -> std::same_as<bool>;
  channel.send_async(tensor, rank).wait();
  channel.receive_async(tensor, rank).wait();
};

/// The stream, type and shape of the tensors that pass between stages.
struct PipelineBoundary {
  Stream stream;
  DType type;
  Shape shape;
};

/// Runs one rank's program of a schedule with sends and receives. Only computing actions wait, each for its own input;
/// sent tensors are kept until they have been sent.
///
/// With `turns`, a backward pass and the forward pass that follows it run as two alternating tasks: when one is about
/// to wait for other ranks within the stage, the other continues. The order of the forward passes does not change, nor
/// that of the backward passes.
template <PipelineStage Stage, PipelineChannel Channel>
class PipelineExecutor {
 public:
  /// `schedule` must have passed check_schedule() and contain transfers. `stages`: the stages of this rank in ascending
  /// order. `turns` must be null if the pipeline has several stages, and may be null if it has one. `stages`, `channel`
  /// and `turns` must outlive the executor.
  PipelineExecutor(Schedule schedule, int rank, std::vector<Stage*> stages, const Channel& channel,
                   PipelineBoundary boundary, Turns* turns = nullptr)
      : schedule_(std::move(schedule)),
        shape_(schedule_.shape),
        rank_(rank),
        stages_(std::move(stages)),
        channel_(channel),
        boundary_(std::move(boundary)),
        turns_(turns),
        arrivals_(table_size(shape_)),
        results_(table_size(shape_)) {
    require(static_cast<int>(stages_.size()) == shape_.virtual_stages,
            "a pipeline rank received {} stages instead of {}", stages_.size(), shape_.virtual_stages);
    require(!turns_ || shape_.stages() == 1,
            "passes cannot take turns in a pipeline of {} stages, only without a pipeline", shape_.stages());
  }

  /// Runs one step. Returns the actions with their start and end, in seconds from the beginning of the step. Waiting
  /// for input is not included. Passes that ran as alternating tasks overlap.
  std::vector<TimedAction> run() {
    begin_ = Clock::now();
    std::vector<TimedAction> trace;
    const Program& program = schedule_.programs.at(static_cast<std::size_t>(rank_));
    for (std::size_t i = 0; i < program.size(); ++i) {
      if (i + 1 < program.size() && take_turns(program[i], program[i + 1])) {
        std::array<TimedAction, 2> both{};
        turns_->run([&] { both[0] = run(program[i]); }, [&] { both[1] = run(program[i + 1]); },
                    profile_of(boundary_.stream));
        trace.insert(trace.end(), both.begin(), both.end());
        ++i;
      } else {
        trace.push_back(run(program[i]));
      }
    }
    const ProfileScope timed(profile_of(boundary_.stream), "pipeline wait");
    for (Sending& sending : sending_) sending.pending.wait();
    sending_.clear();
    return trace;
  }

 private:
  using PendingSend = decltype(std::declval<const Channel&>().send_async(std::declval<const Tensor&>(), 0));
  using PendingReceive = decltype(std::declval<const Channel&>().receive_async(std::declval<const Tensor&>(), 0));
  // The tensor is declared first, so that it is destroyed last: a destructor of `pending` may wait for the operation.
  struct Sending {
    Tensor tensor;
    PendingSend pending;
  };
  struct Arrival {
    Tensor tensor;
    std::vector<PendingReceive> pending;  // empty: the tensor was passed in memory
  };

  double now() const { return seconds_since(begin_); }

  bool take_turns(const Action& first, const Action& second) const {
    return turns_ && first.kind == Action::Kind::backward && second.kind == Action::Kind::forward;
  }

  TimedAction run(const Action& action) {
    forget_sent();
    double start = now();
    if (action.computes()) {
      const Tensor input = take_input(action);
      forget_sent();  // while this rank waited, others received
      start = now();
      Profile* const spans = traced();
      const ProfileScope timed(spans, spans ? text(action, shape_).c_str() : "");
      deliver(action, compute(action, input));
    } else if (action.kind == Action::Kind::send_activation || action.kind == Action::Kind::send_gradient) {
      send(moved_by(action));
    } else {
      receive(moved_by(action));
    }
    return {action, start, now()};
  }

  void forget_sent() {
    std::erase_if(sending_, [](Sending& sending) { return sending.pending.test(); });
  }

  /// Returns the profile of the stream if it records spans; else null. Times of entries do not need the passes.
  Profile* traced() const {
    Profile* const profile = profile_of(boundary_.stream);
    return profile && profile->records_spans() ? profile : nullptr;
  }

  Tensor take_input(const Action& action) {
    const auto needed = needed_by(action, shape_);
    if (!needed) return {};
    const ProfileScope timed(profile_of(boundary_.stream), "pipeline wait");
    Arrival arrival = std::exchange(arrivals_[table_index(*needed, shape_)], {});
    require(arrival.tensor.defined(), "pipeline rank {}, {}: its input was neither computed here nor received", rank_,
            text(action, shape_));
    for (PendingReceive& pending : arrival.pending) pending.wait();
    return arrival.tensor;
  }

  Tensor compute(const Action& action, const Tensor& input) {
    Stage& stage = *stages_[static_cast<std::size_t>(shape_.chunk_of(action.stage))];
    switch (action.kind) {
      case Action::Kind::forward: return stage.forward(action.microbatch, input);
      case Action::Kind::backward: return stage.backward(action.microbatch, input);
      case Action::Kind::backward_input: return stage.backward_input(action.microbatch, input);
      default: stage.backward_weight(action.microbatch); return {};
    }
  }

  /// Stores a result for the next stage on this rank, or for the send that follows.
  void deliver(const Action& action, Tensor result) {
    const auto made = made_by(action, shape_);
    if (!made) return;
    require(result.defined(), "pipeline rank {}, {}: stage {} returned no result for stage {}", rank_,
            text(action, shape_), made->from, made->to);
    require(result.shape() == boundary_.shape && result.dtype() == boundary_.type,
            "pipeline rank {}, {}: stage {} returned {} {}, but stages exchange {} {}", rank_, text(action, shape_),
            made->from, name_of(result.dtype()), result.shape().text(), name_of(boundary_.type),
            boundary_.shape.text());
    if (crosses_ranks(*made, shape_)) {
      results_[table_index(*made, shape_)] = std::move(result);
    } else {
      arrivals_[table_index(*made, shape_)].tensor = std::move(result);
    }
  }

  void send(const Handover& handover) {
    Tensor tensor = std::exchange(results_[table_index(handover, shape_)], {});
    PendingSend pending = channel_.send_async(tensor, shape_.rank_of(handover.to));
    sending_.push_back({std::move(tensor), std::move(pending)});
  }

  void receive(const Handover& handover) {
    Arrival& arrival = arrivals_[table_index(handover, shape_)];
    arrival.tensor = Tensor::empty(boundary_.stream, boundary_.type, boundary_.shape);
    arrival.pending.push_back(channel_.receive_async(arrival.tensor, shape_.rank_of(handover.from)));
  }

  const Schedule schedule_;
  const PipelineShape shape_;
  const int rank_;
  const std::vector<Stage*> stages_;
  const Channel& channel_;
  const PipelineBoundary boundary_;
  Turns* const turns_;
  Clock::time_point begin_;
  std::vector<Arrival> arrivals_;  // by handover: being received, or produced on this rank
  std::vector<Tensor> results_;    // by handover: produced, not yet sent
  /// Messages in flight.
  std::vector<Sending> sending_;
};

}  // namespace lyceum
