#include "parallel/pipeline/tape_stage.h"

#include "core/error.h"

namespace lyceum {

TapeStage::Record& TapeStage::record_of(int microbatch, const char* action) {
  const auto found = records_.find(microbatch);
  require(found != records_.end(), "{} of micro-batch {}, which has no recorded forward pass", action, microbatch);
  return found->second;
}

Tensor TapeStage::forward(int microbatch, const Tensor& x) {
  Record record{.tape = std::make_unique<Tape>(stream_, mode_), .x = {}, .results = {}};
  if (x.defined()) record.x = record.tape->leaf(x);
  record.results = run_(*record.tape, microbatch, record.x);
  Tensor y = record.results.y.value;
  if (mode_ == Tape::Mode::inference) return y;
  record.x.value = {};  // the tape keeps the parts of these values that backward needs
  record.results.y.value = {};
  require(records_.emplace(microbatch, std::move(record)).second, "the forward pass of micro-batch {} ran twice",
          microbatch);
  return y;
}

Tensor TapeStage::walk(Record& record, const Tensor& dy, Tape::WeightGrad weight_grad) {
  std::vector<Tape::Seed> seeds = std::move(record.results.seeds);
  if (dy.defined()) seeds.push_back({record.results.y, dy});
  record.tape->backward(seeds, weight_grad);
  return record.tape->gradient(record.x);
}

Tensor TapeStage::backward(int microbatch, const Tensor& dy) {
  Tensor dx = walk(record_of(microbatch, "backward"), dy, Tape::WeightGrad::now);
  records_.erase(microbatch);
  return dx;
}

Tensor TapeStage::backward_input(int microbatch, const Tensor& dy) {
  return walk(record_of(microbatch, "backward_input"), dy, Tape::WeightGrad::later);
}

void TapeStage::backward_weight(int microbatch) {
  record_of(microbatch, "backward_weight").tape->weight_gradients();
  records_.erase(microbatch);
}

}  // namespace lyceum
