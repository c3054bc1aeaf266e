#include "parallel/pipeline/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "parallel/pipeline/check.h"
#include "parallel/pipeline/schedule_text.h"
#include "parallel/pipeline/transfers.h"
#include "support/schedules.h"

namespace lyceum {
namespace {

/// Messages between threads that act as ranks. The sender's memory is read only when the receiver waits, which is the
/// latest time a transport may do so. The n-th receive from a rank gets its n-th message.
class Post {
 public:
  struct Letter {
    const void* from = nullptr;
    std::size_t bytes = 0;
    bool taken = false;
  };
  using Address = std::pair<int, int>;  // from, to

  std::shared_ptr<Letter> send(Address address, const Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    auto letter = std::make_shared<Letter>(Letter{tensor.raw(), tensor.bytes(), false});
    sent_[address].push_back(letter);
    changed_.notify_all();
    return letter;
  }
  std::size_t receive(Address address) {
    const std::lock_guard lock(mutex_);
    return receives_[address]++;
  }
  void take(Address address, std::size_t number, const Tensor& tensor) {
    std::unique_lock lock(mutex_);
    await(lock, [&] { return sent_[address].size() > number; });
    Letter& letter = *sent_[address][number];
    ASSERT_EQ(letter.bytes, tensor.bytes());
    std::memcpy(tensor.raw(), letter.from, letter.bytes);
    letter.taken = true;
    changed_.notify_all();
  }
  bool taken(const Letter& letter) {
    const std::lock_guard lock(mutex_);
    return letter.taken;
  }
  void await_taken(const Letter& letter) {
    std::unique_lock lock(mutex_);
    await(lock, [&] { return letter.taken; });
  }
  /// Ends all waits after a rank has failed.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  template <class F>
  void await(std::unique_lock<std::mutex>& lock, F&& done) {
    require(changed_.wait_for(lock, std::chrono::seconds(20), [&] { return closed_ || done(); }), "nothing came");
    require(done(), "the post is closed");
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Address, std::vector<std::shared_ptr<Letter>>> sent_;
  std::map<Address, std::size_t> receives_;
  bool closed_ = false;
};

/// The channel of one rank.
struct PostChannel {
  Post& post;
  int rank;

  struct Sent {
    Post* post;
    std::shared_ptr<Post::Letter> letter;
    bool test() { return post->taken(*letter); }
    void wait() { post->await_taken(*letter); }
  };
  struct Received {
    Post* post;
    Post::Address address;
    std::size_t number;
    Tensor tensor;
    bool test() { return false; }
    void wait() { post->take(address, number, tensor); }
  };
  Sent send_async(const Tensor& tensor, int to) const { return {&post, post.send({rank, to}, tensor)}; }
  Received receive_async(const Tensor& tensor, int from) const {
    return {&post, {from, rank}, post.receive({from, rank}), tensor};
  }
};

constexpr std::int64_t width = 5;

/// Computes y = w · x, elementwise. The first stage makes x of the micro-batch; the last has the loss Σ y² / 2, so dy =
/// y. All values are small integers times powers of `w`, so any error is large.
class ScalingStage {
 public:
  ScalingStage(Stream stream, int stage, int stages)
      : weight(1.0 + 0.25 * (stage % 3)), stream_(std::move(stream)), stage_(stage), stages_(stages) {}

  Tensor forward(int microbatch, const Tensor& x) {
    EXPECT_EQ(x.defined(), stage_ > 0);
    Tensor input = x;
    if (stage_ == 0) {
      input = make();
      for (std::int64_t i = 0; i < width; ++i)
        input.data<double>()[i] = static_cast<double>(microbatch * width + i + 1);
    }
    EXPECT_TRUE(kept_.emplace(microbatch, Kept{input, {}}).second);
    return scaled(input);
  }
  Tensor backward(int microbatch, const Tensor& dy) {
    Tensor dx = backward_input(microbatch, dy);
    backward_weight(microbatch);
    return dx;
  }
  Tensor backward_input(int microbatch, const Tensor& dy) {
    EXPECT_EQ(dy.defined(), stage_ + 1 < stages_);
    Kept& kept = kept_.at(microbatch);
    kept.dy = dy.defined() ? dy : scaled(kept.x);
    return stage_ > 0 ? scaled(kept.dy) : Tensor{};
  }
  void backward_weight(int microbatch) {
    const auto kept = kept_.extract(microbatch);
    ASSERT_FALSE(kept.empty());
    for (std::int64_t i = 0; i < width; ++i) {
      gradient += kept.mapped().dy.data<double>()[i] * kept.mapped().x.data<double>()[i];
    }
  }
  bool keeps_nothing() const { return kept_.empty(); }

  double weight, gradient = 0;

 private:
  struct Kept {
    Tensor x, dy;
  };
  Tensor make() const { return Tensor::empty(stream_, DType::f64, {width}); }
  Tensor scaled(const Tensor& x) const {
    const Tensor y = make();
    for (std::int64_t i = 0; i < width; ++i) y.data<double>()[i] = weight * x.data<double>()[i];
    return y;
  }
  Stream stream_;
  int stage_, stages_;
  std::map<int, Kept> kept_;
};

/// Returns the gradients of every stage for `steps` equal steps, by the formulas.
std::vector<double> serial_gradients(const PipelineShape& shape, int steps) {
  std::vector<double> gradients(static_cast<std::size_t>(shape.stages()), 0.0);
  for (int step = 0; step < steps; ++step) {
    for (int m = 0; m < shape.microbatches; ++m) {
      std::vector<std::vector<double>> x{{}};
      for (std::int64_t i = 0; i < width; ++i) x[0].push_back(static_cast<double>(m * width + i + 1));
      const auto weight = [](int stage) { return 1.0 + 0.25 * (stage % 3); };
      for (int s = 0; s < shape.stages(); ++s) {
        x.push_back(x.back());
        for (double& value : x.back()) value *= weight(s);
      }
      std::vector<double> dy = x.back();
      for (int s = shape.stages() - 1; s >= 0; --s) {
        const auto place = static_cast<std::size_t>(s);
        for (std::size_t i = 0; i < dy.size(); ++i) gradients[place] += dy[i] * x[place][i];
        for (double& value : dy) value *= weight(s);
      }
    }
  }
  return gradients;
}

/// Runs body(rank, channel) in one thread per rank. The first error ends all ranks and is rethrown.
void run_ranks(int ranks, const std::function<void(int, PostChannel&)>& body) {
  Post post;
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        PostChannel channel{post, rank};
        body(rank, channel);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
        post.close();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

PipelineBoundary boundary_of(const Stream& stream) { return {.stream = stream, .type = DType::f64, .shape = {width}}; }

TEST(PipelineExecutor, GivesTheGradientsOfOneRank) {
  for_each_schedule([](ScheduleKind kind, const Schedule& computing) {
    if (computing.shape.ranks > 5) return;
    const Schedule schedule = with_transfers(computing);
    const PipelineShape& shape = schedule.shape;
    SCOPED_TRACE(name_of(kind) + "\n" + text(schedule));
    const int steps = 2;
    std::vector<double> gradients(static_cast<std::size_t>(shape.stages()));
    run_ranks(shape.ranks, [&](int rank, PostChannel& channel) {
      const Stream stream = CpuStream(1);
      std::vector<std::unique_ptr<ScalingStage>> stages;
      std::vector<ScalingStage*> pointers;
      for (int chunk = 0; chunk < shape.virtual_stages; ++chunk) {
        stages.push_back(std::make_unique<ScalingStage>(stream, chunk * shape.ranks + rank, shape.stages()));
        pointers.push_back(stages.back().get());
      }
      PipelineExecutor executor(schedule, rank, pointers, channel, boundary_of(stream));
      for (int step = 0; step < steps; ++step) {
        const std::vector<TimedAction> trace = executor.run();
        Program done;
        double clock = 0;
        for (const TimedAction& timed : trace) {
          done.push_back(timed.action);
          EXPECT_LE(clock, timed.start);
          EXPECT_LE(timed.start, timed.end);
          clock = timed.end;
        }
        EXPECT_EQ(done, schedule.programs[static_cast<std::size_t>(rank)]);
      }
      for (int chunk = 0; chunk < shape.virtual_stages; ++chunk) {
        const ScalingStage& stage = *pointers[static_cast<std::size_t>(chunk)];
        EXPECT_TRUE(stage.keeps_nothing());
        gradients[static_cast<std::size_t>(chunk * shape.ranks + rank)] = stage.gradient;
      }
    });
    EXPECT_EQ(gradients, serial_gradients(shape, steps));
  });
}

/// A stage with two exchanges per pass, which logs the progress of its passes. Its second forward pass may fail.
struct ExchangingStage {
  Turns* turns;
  bool fails = false;
  std::string log{};

  void pass(const std::string& name) {
    for (const char* part : {"a ", "b "}) {
      log += name + part;
      turns->note_start();
      turns->before_wait();
      require(!fails || name != "F1", "F1 failed");
    }
    log += name + "c ";
  }
  Tensor forward(int microbatch, const Tensor&) {
    pass("F" + std::to_string(microbatch));
    return {};
  }
  Tensor backward(int microbatch, const Tensor&) {
    pass("B" + std::to_string(microbatch));
    return {};
  }
  Tensor backward_input(int, const Tensor&) { return {}; }
  void backward_weight(int) {}
};

TEST(PipelineExecutor, ABackwardPassAndTheNextForwardPassTakeTurns) {
  Post post;
  PostChannel channel{post, 0};
  const Schedule schedule = one_forward_one_backward({.ranks = 1, .microbatches = 3});
  const PipelineBoundary boundary = boundary_of(CpuStream(1));
  Turns turns;
  ExchangingStage stage{.turns = &turns}, plain{.turns = &turns};
  const std::vector<ExchangingStage*> stages{&stage}, plain_stages{&plain};
  PipelineExecutor executor(schedule, 0, stages, channel, boundary, &turns);
  const std::vector<TimedAction> trace = executor.run();
  EXPECT_EQ(stage.log, "F0a F0b F0c B0a F1a B0b F1b B0c F1c B1a F2a B1b F2b B1c F2c B2a B2b B2c ");
  Program done;
  for (const TimedAction& timed : trace) done.push_back(timed.action);
  EXPECT_EQ(done, schedule.programs[0]);
  for (const std::size_t i : {1, 3}) {  // started within the previous pass
    EXPECT_LE(trace[i + 1].start, trace[i].end);
    EXPECT_LE(trace[i].end, trace[i + 1].end);
  }
  PipelineExecutor(schedule, 0, plain_stages, channel, boundary).run();
  EXPECT_EQ(plain.log, "F0a F0b F0c B0a B0b B0c F1a F1b F1c B1a B1b B1c F2a F2b F2c B2a B2b B2c ");
  stage.log.clear();
  stage.fails = true;
  EXPECT_THROW(executor.run(), Error);
  EXPECT_EQ(stage.log, "F0a F0b F0c B0a F1a B0b ");
  EXPECT_THROW(
      (PipelineExecutor(with_transfers(gpipe({.ranks = 2, .microbatches = 2})), 0, stages, channel, boundary, &turns)),
      Error);
}

/// A stage that returns a tensor of the wrong shape for micro-batch 1.
struct WrongStage : ScalingStage {
  using ScalingStage::ScalingStage;
  Tensor forward(int microbatch, const Tensor& x) {
    const Tensor y = ScalingStage::forward(microbatch, x);
    return microbatch == 1 ? y.slice(0, 2) : y;
  }
};

TEST(PipelineExecutor, AResultOfAnotherShapeIsNamed) {
  const Schedule schedule = with_transfers(gpipe({.ranks = 2, .microbatches = 2}));
  // The streams must outlive the failed rank, since the other one may read the tensors that it sent.
  const std::array<Stream, 2> streams{CpuStream(1), CpuStream(1)};
  try {
    run_ranks(2, [&](int rank, PostChannel& channel) {
      const Stream& stream = streams[static_cast<std::size_t>(rank)];
      WrongStage stage(stream, rank, 2);
      PipelineExecutor executor(schedule, rank, std::vector<WrongStage*>{&stage}, channel, boundary_of(stream));
      (void)executor.run();
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "pipeline rank 0, F1: stage 0 returned f64 [2], but stages exchange f64 [5]");
  }
}

TEST(PipelineExecutor, AScheduleWithoutTransfersIsNamed) {
  Post post;
  PostChannel channel{post, 1};
  const Stream stream = CpuStream(1);
  ScalingStage stage(stream, 1, 2);
  PipelineExecutor executor(gpipe({.ranks = 2, .microbatches = 1}), 1, std::vector<ScalingStage*>{&stage}, channel,
                            boundary_of(stream));
  try {
    (void)executor.run();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "pipeline rank 1, F0: its input was neither computed here nor received");
  }
}

TEST(PipelineExecutor, EveryRankHasAllItsStages) {
  Post post;
  PostChannel channel{post, 0};
  EXPECT_THROW((PipelineExecutor(gpipe({.ranks = 1, .microbatches = 1}), 0, std::vector<ScalingStage*>{}, channel,
                                 boundary_of(CpuStream(1)))),
               Error);
}

}  // namespace
}  // namespace lyceum
