#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "autograd/tape.h"
#include "parallel/pipeline/executor.h"

namespace lyceum {

/// A pipeline stage that records every micro-batch on a separate tape, which is freed after its weight gradients. In
/// inference mode nothing is kept, and there is no backward pass.
class TapeStage {
 public:
  struct Results {
    Variable y;                       // passed to the next stage; undefined for the last one
    std::vector<Tape::Seed> seeds{};  // seeds of the losses that are computed in this stage
  };
  /// Runs the stage's part of the model for one micro-batch. `x` is undefined in the first stage. To be notified of
  /// final gradients, it must set the listener of the tape in every call.
  using Run = std::function<Results(Tape& tape, int microbatch, const Variable& x)>;

  TapeStage(Stream stream, Run run, Tape::Mode mode = Tape::Mode::record)
      : stream_(std::move(stream)), run_(std::move(run)), mode_(mode) {}

  /// See PipelineStage. Throw an Error if forward() is called twice for a micro-batch before its backward pass has
  /// ended, or a backward function for a micro-batch without a recorded forward pass.
  Tensor forward(int microbatch, const Tensor& x);
  Tensor backward(int microbatch, const Tensor& dy);
  Tensor backward_input(int microbatch, const Tensor& dy);
  void backward_weight(int microbatch);

 private:
  struct Record {
    std::unique_ptr<Tape> tape;
    Variable x;
    Results results;
  };
  Record& record_of(int microbatch, const char* action);
  Tensor walk(Record& record, const Tensor& dy, Tape::WeightGrad weight_grad);

  Stream stream_;
  Run run_;
  Tape::Mode mode_;
  std::map<int, Record> records_;  // by micro-batch
};
static_assert(PipelineStage<TapeStage>);

}  // namespace lyceum
