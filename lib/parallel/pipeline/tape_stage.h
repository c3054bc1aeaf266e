#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "autograd/tape.h"
#include "parallel/pipeline/executor.h"

namespace lyceum {

/// A pipeline stage that records every micro-batch on a separate tape, which lives until its weight gradients are
/// done. In inference mode it keeps nothing and has no backward.
class TapeStage {
 public:
  struct Results {
    Variable y;                       // for the next stage; the last one leaves it undefined
    std::vector<Tape::Seed> seeds{};  // of losses that this stage has by itself
  };
  /// The stage's part of the model. x is undefined in the first stage. To hear of final gradients it sets the tape's
  /// listener for every micro-batch.
  using Run = std::function<Results(Tape& tape, int microbatch, const Variable& x)>;

  TapeStage(Stream stream, Run run, Tape::Mode mode = Tape::Mode::record)
      : stream_(std::move(stream)), run_(std::move(run)), mode_(mode) {}

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
