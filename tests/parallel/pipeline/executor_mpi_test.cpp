#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "autograd/linear.h"
#include "autograd/rms_norm.h"
#include "autograd/sum.h"
#include "core/random.h"
#include "parallel/comm/process_group.h"
#include "parallel/pipeline/balance.h"
#include "parallel/pipeline/check.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/schedule_text.h"
#include "parallel/pipeline/tape_stage.h"
#include "parallel/pipeline/transfers.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

constexpr std::int64_t tokens = 7, width = 12;

/// A chain of layers x + norm(x) · Wᵀ, with the values at stage boundaries that a transformer has.
class Chain {
 public:
  /// Makes the layers [first, end).
  Chain(const Stream& stream, int first, int end) : stream_(stream) {
    for (int layer = first; layer < end; ++layer) {
      const std::string name = "layer" + std::to_string(layer);
      auto unit = std::make_unique<ParameterUnit>(name, ParameterUnit::Group::dense);
      unit->add(whole_parameter(name + "/norm", {width}, {}, false));
      unit->add(whole_parameter(name + "/weight", {width, width}, 0.2, true));
      unit->allocate(stream, DType::f32, true);
      unit->initialize(stream, 17);
      layers_.push_back(std::move(unit));
    }
  }

  Variable run(Tape& tape, Variable x) const {
    for (const auto& layer : layers_) {
      const Variable normed = tape.apply(RmsNorm{layer->parameters()[0].get(), 1e-6}, x);
      x = tape.apply(Sum{}, x, tape.apply(Linear{layer->parameters()[1].get()}, normed));
    }
    return x;
  }
  /// Returns random numbers that are the same on every rank.
  Tensor random(const char* purpose, int microbatch) const {
    const Tensor tensor = Tensor::empty(stream_, DType::f32, {tokens, width});
    fill_normal(tensor.span<float>(), 1.0, Philox(5, purpose), static_cast<std::uint64_t>(microbatch * tensor.size()));
    return tensor;
  }
  const std::vector<std::unique_ptr<ParameterUnit>>& layers() const { return layers_; }

 private:
  Stream stream_;
  std::vector<std::unique_ptr<ParameterUnit>> layers_;
};

bool is_zero(const Tensor& tensor) {
  const auto values = tensor.span<float>();
  return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

/// The results of a step of all layers without a pipeline.
struct Serial {
  Serial(const Stream& stream, int layers, int microbatches) : chain(stream, 0, layers) {
    for (int m = 0; m < microbatches; ++m) {
      Tape tape(stream);
      const Variable y = chain.run(tape, tape.leaf(chain.random("input", m)));
      results.push_back(y.value);
      tape.backward({{y, chain.random("slope", m)}});
    }
  }
  Chain chain;
  std::vector<Tensor> results;  // one per micro-batch
};

/// This rank's stages of the chain, and steps of a pipeline with them.
struct PipelinedChain {
  PipelinedChain(const Stream& on, const PipelineShape& shape, int rank, std::span<const int> cuts)
      : stream(on), results(static_cast<std::size_t>(shape.microbatches)) {
    for (int chunk = 0; chunk < shape.virtual_stages; ++chunk) {
      const int stage = chunk * shape.ranks + rank;
      first_layers.push_back(cuts[static_cast<std::size_t>(stage)]);
      chains.push_back(std::make_unique<Chain>(stream, first_layers.back(), cuts[static_cast<std::size_t>(stage) + 1]));
      const bool last = stage + 1 == shape.stages();
      stages.push_back(std::make_unique<TapeStage>(
          stream, [this, last, &chain = *chains.back()](Tape& tape, int microbatch, const Variable& x) {
            const Variable y = chain.run(tape, x.value.defined() ? x : Variable{chain.random("input", microbatch)});
            if (!last) return TapeStage::Results{.y = y};
            results[static_cast<std::size_t>(microbatch)] = y.value;
            return TapeStage::Results{.y = {}, .seeds = {{y, chain.random("slope", microbatch)}}};
          }));
    }
  }

  std::vector<TimedAction> run(const Schedule& schedule, const ProcessGroup& group) const {
    std::vector<TapeStage*> all;
    for (const auto& stage : stages) all.push_back(stage.get());
    const PipelineBoundary boundary{.stream = stream, .type = DType::f32, .shape = {tokens, width}};
    return PipelineExecutor(schedule, group.rank(), all, group, boundary).run();
  }

  Stream stream;
  std::vector<Tensor> results;  // results of the last stage, one per micro-batch
  std::vector<int> first_layers;
  std::vector<std::unique_ptr<Chain>> chains;  // one per virtual stage
  std::vector<std::unique_ptr<TapeStage>> stages;
};

void expect_equal_to_serial(ScheduleKind kind, const PipelineShape& shape, const ProcessGroup& world) {
  SCOPED_TRACE(name_of(kind) + ", " + std::to_string(shape.microbatches) + " micro-batches");
  const Stream stream = CpuStream(1);
  const int layers = 2 * shape.stages() + 1;  // some stages have two layers, others three
  const std::vector<int> cuts =
      balance_stages(std::vector<double>(static_cast<std::size_t>(layers), 1), shape.stages());
  const Serial serial(stream, layers, shape.microbatches);
  const Schedule schedule = with_transfers(make_schedule(kind, shape));
  check_schedule(schedule);
  const PipelinedChain chain(stream, shape, world.rank(), cuts);
  const std::vector<TimedAction> trace = chain.run(schedule, world);

  Program done;
  for (const TimedAction& timed : trace) done.push_back(timed.action);
  EXPECT_EQ(text(done, shape), text(schedule.programs[static_cast<std::size_t>(world.rank())], shape));
  for (std::size_t c = 0; c < chain.chains.size(); ++c) {
    const auto& own = chain.chains[c]->layers();
    for (std::size_t l = 0; l < own.size(); ++l) {
      const ParameterUnit& expected = *serial.chain.layers()[static_cast<std::size_t>(chain.first_layers[c]) + l];
      EXPECT_TRUE(same_bits(own[l]->gradients(), expected.gradients())) << own[l]->name();
      EXPECT_FALSE(is_zero(expected.gradients()));
    }
  }
  if (world.rank() + 1 < world.size()) return;
  for (std::size_t m = 0; m < serial.results.size(); ++m) {
    EXPECT_TRUE(same_bits(chain.results[m], serial.results[m])) << "result of micro-batch " << m;
  }
}

TEST(PipelineExecutorRanks, EverySchedulesGradientsAreThoseOfOneRank) {
  const ProcessGroup world = test_world();
  const int ranks = world.size();
  for (const ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward, ScheduleKind::zero_bubble}) {
    for (const int microbatches : {1, ranks, 2 * ranks + 3}) {
      expect_equal_to_serial(kind, {.ranks = ranks, .microbatches = microbatches}, world);
    }
  }
  for (const int groups : {1, 3}) expect_equal_to_serial(ScheduleKind::interleaved, {ranks, 2, groups * ranks}, world);
}

TEST(PipelineExecutorRanks, ForwardAlone) {
  const ProcessGroup world = test_world();
  const Stream stream = CpuStream(1);
  const PipelineShape shape{.ranks = world.size(), .virtual_stages = 2, .microbatches = 3};
  std::vector<int> cuts;
  for (int s = 0; s <= shape.stages(); ++s) cuts.push_back(s);
  const PipelinedChain chain(stream, shape, world.rank(), cuts);
  chain.run(with_transfers(forward_only(shape)), world);
  if (world.rank() + 1 < world.size()) return;
  const Serial serial(stream, shape.stages(), shape.microbatches);
  for (std::size_t m = 0; m < serial.results.size(); ++m) EXPECT_TRUE(same_bits(chain.results[m], serial.results[m]));
}

TEST(PipelineExecutorRanks, OneStepAfterAnother) {
  const ProcessGroup world = test_world();
  const Stream stream = CpuStream(1);
  const PipelineShape shape{.ranks = world.size(), .microbatches = 5};
  std::vector<int> cuts;
  for (int s = 0; s <= shape.stages(); ++s) cuts.push_back(s);
  const PipelinedChain chain(stream, shape, world.rank(), cuts);
  const Serial serial(stream, shape.stages(), shape.microbatches);
  const ParameterUnit& unit = *chain.chains[0]->layers()[0];
  for (const ScheduleKind kind :
       {ScheduleKind::one_forward_one_backward, ScheduleKind::zero_bubble, ScheduleKind::gpipe}) {
    std::memset(unit.gradients().raw(), 0, unit.gradients().bytes());
    chain.run(with_transfers(make_schedule(kind, shape)), world);
    EXPECT_TRUE(same_bits(unit.gradients(), serial.chain.layers()[static_cast<std::size_t>(world.rank())]->gradients()))
        << name_of(kind);
  }
}

}  // namespace
}  // namespace lyceum
