#include "core/cuda_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/allocator.h"
#include "core/copy.h"
#include "core/cuda_copy.h"
#include "core/cuda_event.h"
#include "core/cuda_graph.h"
#include "core/cuda_processors.h"
#include "core/polling.h"
#include "core/profile.h"
#include "core/recorded_work.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"

namespace lyceum {
namespace {

template <class T>
std::vector<T> fetch(const Stream& stream, const Tensor& tensor) {
  std::vector<T> values(static_cast<std::size_t>(tensor.size()));
  copy_to_host(stream, std::span(values), tensor.span<const T>());
  return values;
}

TEST(CudaStream, CopiesOfAnySizeArrive) {
  const Stream stream = CudaStream();
  for (const std::int64_t size : {0, 1, 1000, 1 << 20, (1 << 20) + 1, 3 * (1 << 20) + 77}) {  // chunks have 4 MB
    std::vector<float> host(static_cast<std::size_t>(size));
    std::iota(host.begin(), host.end(), 1.0f);
    const std::vector<float> before = host;
    const Tensor device = Tensor::empty(stream, DType::f32, {size}), other = Tensor::empty(stream, DType::f32, {size});
    copy_to_device(stream, device.span<float>(), std::span<const float>(host));
    std::fill(host.begin(), host.end(), -1.0f);  // allowed as soon as the call has returned
    copy_on_device(stream, other.raw(), device.raw(), device.bytes());
    EXPECT_EQ(fetch<float>(stream, other), before);
  }
}

TEST(CudaStream, ZerosAreZerosInUsedMemoryToo) {
  const Stream stream = CudaStream();
  const void* place = nullptr;
  {
    const Tensor used = Tensor::empty(stream, DType::i32, {5000});
    const std::vector<std::int32_t> sevens(5000, 7);
    copy_to_device(stream, used.span<std::int32_t>(), std::span(sevens));
    place = used.raw();
  }
  const Tensor zeros = Tensor::zeros(stream, DType::i32, {5000}, MemoryKind::gradients);
  EXPECT_EQ(zeros.raw(), place) << "a freed block is used again";
  EXPECT_EQ(fetch<std::int32_t>(stream, zeros), std::vector<std::int32_t>(5000));
  const MemoryUse use = memory_of(stream).use();
  EXPECT_EQ(use.in_use[static_cast<std::size_t>(MemoryKind::gradients)], 20000u);
  EXPECT_EQ(use.peak[static_cast<std::size_t>(MemoryKind::activations)], 20000u);
}

TEST(CudaStream, TheLimitIsNamedWithItsGpu) {
  const CudaStream stream(0, 1 << 20);
  try {
    stream.memory().allocate(2 << 20, MemoryKind::weights);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("out of memory on GPU 0"));
  }
  EXPECT_THROW(CudaStream{CudaStream::device_count()}, Error);
  EXPECT_THROW(CudaStream{-1}, Error);
}

TEST(CudaStream, ABadIndexIsReportedOnceAtTheNextWait) {
  const Stream stream = CudaStream();
  const CudaStream& cuda = std::get<CudaStream>(stream);
  const Tensor tokens = Tensor::empty(stream, DType::i32, {3}), table = Tensor::zeros(stream, DType::f32, {5, 4}),
               y = Tensor::empty(stream, DType::f32, {3, 4});
  const std::vector<std::int32_t> bad{0, 9, 1};
  copy_to_device(stream, tokens.span<std::int32_t>(), std::span(bad));
  launch(stream, EmbeddingForward<float>{.tokens = tokens.span<const std::int32_t>(),
                                         .table = table.matrix<const float>(),
                                         .y = y.matrix<float>()});
  try {
    cuda.synchronise();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("EmbeddingForward: tokens contains 9, outside of [0, 5), on GPU 0"));
  }
  EXPECT_NO_THROW(cuda.synchronise());
  EXPECT_EQ(fetch<float>(stream, y), std::vector<float>(12));
}

TEST(CudaStream, TimesLaunchesOnTheDevice) {
  const Stream stream = CudaStream();
  const auto profile = std::make_shared<Profile>();
  std::get<CudaStream>(stream).set_profile(profile);
  const Tensor x = Tensor::zeros(stream, DType::f32, {1 << 16});
  {
    const ProfileScope step(profile_of(stream), "step");
    for (int i = 0; i < 3; ++i) launch(stream, Scale<float>{x.span<const float>(), x.span<float>(), 2});
  }
  const auto& entries = profile->entries();
  EXPECT_EQ(entries.at("step").calls, 1);
  EXPECT_EQ(entries.at("step/Scale").calls, 3);
  EXPECT_GT(entries.at("step/Scale").seconds, 0);
  std::get<CudaStream>(stream).set_profile(nullptr);
}

struct Counter final : WaitObserver {
  int looks = 0, waits = 0, patience = 1000;
  void waiting(double waited) override {
    EXPECT_GE(waited, 0);
    require(++looks <= patience, "no longer");
  }
  void over() noexcept override { ++waits; }
};

TEST(CudaStream, ObserversAreNotifiedOfWaitsAndMayEndThem) {
  const CudaStream stream;
  Counter counter;
  stream.add_observer(counter);
  stream.wait_until([] { return true; });
  EXPECT_EQ(counter.waits, 0) << "the condition was true at once";
  stream.wait_until([&] { return counter.looks == 3; });
  EXPECT_EQ(counter.waits, 1);
  counter.patience = 10;
  EXPECT_THROW(stream.wait_until([] { return false; }), Error);
  EXPECT_EQ(counter.looks, 11);
  stream.remove_observer(counter);
  int looks = 0;
  stream.wait_until([&] { return ++looks == 20; });
  EXPECT_EQ(counter.looks, 11);
}

struct Kept {
  int calls = 0;
};

TEST(CudaStream, CopiesShareWhatKernelsKeep) {
  const CudaStream one, copy = one, other;
  ++one.keep<Kept>().calls;
  EXPECT_EQ(copy.keep<Kept>().calls, 1);
  EXPECT_EQ(other.keep<Kept>().calls, 0);
  EXPECT_GT(one.processors(), 0);
  EXPECT_EQ(persistent_processors(one), one.processors());
  leave_processors(one, 1);
  EXPECT_EQ(persistent_processors(copy), one.processors() - 1);
  leave_processors(one, 1000);
  EXPECT_EQ(persistent_processors(copy), one.processors() - one.processors() / 2);
}

TEST(CudaEvent, OrdersTwoStreams) {
  const Stream first = CudaStream(), second = CudaStream();
  const auto handle = [](const Stream& stream) { return std::get<CudaStream>(stream).handle(); };
  const Tensor x = Tensor::empty(first, DType::f32, {1 << 20}), y = Tensor::empty(second, DType::f32, {1 << 20});
  const std::vector<float> ones(1 << 20, 1.0f);
  const CudaEvent done;
  EXPECT_TRUE(done.reached()) << "never recorded";
  copy_to_device(first, x.span<float>(), std::span(ones));
  launch(first, Scale<float>{x.span<const float>(), x.span<float>(), 3});
  done.record(handle(first));
  done.hold(handle(second));
  launch(second, Scale<float>{x.span<const float>(), y.span<float>(), 2});
  EXPECT_EQ(fetch<float>(second, y), std::vector<float>(1 << 20, 6.0f));
  done.wait();
  EXPECT_TRUE(done.reached());
}

/// y = 3 · (x + table), with intermediate results in newly allocated memory, and a table that is too large for the
/// arguments of a launch.
void add_and_triple(const Stream& stream, const Tensor& x, const Tensor& y) {
  std::vector<float> table(static_cast<std::size_t>(x.size()));
  std::iota(table.begin(), table.end(), 0.0f);
  const Tensor added = tensor_of(stream, {x.size()}, table), sum = Tensor::empty(stream, DType::f32, {x.size()});
  launch(stream, Add<float>{x.span<const float>(), added.span<const float>(), sum.span<float>()});
  launch(stream, Scale<float>{sum.span<const float>(), y.span<float>(), 3});
}

void fill(const Stream& stream, const Tensor& x, float value) {
  const std::vector<float> values(static_cast<std::size_t>(x.size()), value);
  copy_to_device(stream, x.span<float>(), std::span(values));
}

constexpr std::int64_t graph_size = 5000;
std::vector<float> tripled_sums(float value) {
  std::vector<float> y;
  for (std::int64_t i = 0; i < graph_size; ++i) y.push_back(3 * (value + static_cast<float>(i)));
  return y;
}

TEST(CudaGraph, ReplaysItsWorkOnTheCurrentContentsOfMemory) {
  const Stream stream = CudaStream();
  const Tensor x = Tensor::empty(stream, DType::f32, {graph_size}), y = Tensor::zeros(stream, DType::f32, {graph_size});
  fill(stream, x, 1);
  const CudaGraph graph(std::get<CudaStream>(stream), [&] { add_and_triple(stream, x, y); });
  EXPECT_EQ(fetch<float>(stream, y), std::vector<float>(graph_size)) << "recording does not run the kernels";
  for (const float value : {1.0f, 5.0f, -2.0f}) {
    fill(stream, x, value);
    const Tensor other = Tensor::empty(stream, DType::f32, {graph_size});  // must not reuse the graph's memory
    fill(stream, other, 77);
    graph.launch();
    EXPECT_EQ(fetch<float>(stream, y), tripled_sums(value));
    EXPECT_EQ(fetch<float>(stream, other), std::vector<float>(graph_size, 77));
  }
}

TEST(CudaGraph, WorkThatWaitsCannotBeRecorded) {
  const Stream stream = CudaStream();
  const Tensor x = Tensor::zeros(stream, DType::f32, {graph_size}), y = Tensor::zeros(stream, DType::f32, {graph_size});
  const CudaStream& cuda = std::get<CudaStream>(stream);
  EXPECT_THROW(CudaGraph(cuda, [&] { fetch<float>(stream, x); }), Error);
  EXPECT_THROW(CudaGraph(cuda, [&] { cuda.synchronise(); }), Error);
  add_and_triple(stream, x, y);
  EXPECT_EQ(fetch<float>(stream, y), tripled_sums(0)) << "the stream is still usable";
}

TEST(RecordedWork, RunsOnceIsRecordedAndLaunchedFromThenOn) {
  const Stream stream = CudaStream();
  const Tensor x = Tensor::empty(stream, DType::f32, {graph_size}), y = Tensor::empty(stream, DType::f32, {graph_size});
  RecordedWork work(stream, true), plain(stream, false);
  int visits = 0, plain_visits = 0;
  for (int run = 0; run < 4; ++run) {
    fill(stream, x, static_cast<float>(run));
    work.run([&] { ++visits, add_and_triple(stream, x, y); });
    EXPECT_EQ(fetch<float>(stream, y), tripled_sums(static_cast<float>(run)));
    EXPECT_EQ(work.recorded(), run > 0);
    plain.run([&] { ++plain_visits; });
  }
  EXPECT_EQ(visits, 2);
  EXPECT_EQ(plain_visits, 4);
  EXPECT_FALSE(plain.recorded());
  std::get<CudaStream>(stream).set_profile(std::make_shared<Profile>());
  work.run([&] { ++visits; });
  EXPECT_EQ(visits, 3) << "a profile needs the times of single launches";
  EXPECT_FALSE(work.recorded());
  std::get<CudaStream>(stream).set_profile(nullptr);
}

TEST(PinnedBuffer, MovesItsMemory) {
  PinnedBuffer one(100), two;
  std::byte* memory = one.data();
  memory[99] = std::byte{1};
  two = std::move(one);
  EXPECT_EQ(two.data(), memory);
  EXPECT_EQ(two.size(), 100u);
  const PinnedBuffer three = std::move(two);
  EXPECT_EQ(three.data(), memory);
}

}  // namespace
}  // namespace lyceum
