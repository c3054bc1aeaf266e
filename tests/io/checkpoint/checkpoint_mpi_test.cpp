// Checkpoints written and read by several ranks. Runs with 1, 2, 4 and 8 ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <latch>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/manifest.h"
#include "io/files/whole_file.h"
#include "support/checkpoint_model.h"
#include "support/file_size_limit.h"
#include "support/shared_directory.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::vector<TestTensor>& model() {
  static const std::vector<TestTensor> tensors = {
      {"lm_head/weight", {37, 12}},
      {"model/embed_tokens/weight", {40, 12}},
      {"model/layers/0/mlp/experts/0/gate_proj/weight", {13, 12}},
      {"model/layers/0/mlp/experts/1/gate_proj/weight", {5, 12}},
      {"model/layers/0/input_layernorm/weight", {12}},
      {"model/layers/0/cube", {3, 9, 4}},
      {"model/norm/weight", {1}},
      {"optimizer/exp_avg/lm_head/weight", {37, 12}},
      {"optimizer/exp_avg_sq/lm_head/weight", {37, 12}},
  };
  return tensors;
}

/// Returns part `part` of `parts` of a tensor along an axis. The parts differ in size, and some are empty.
Box part_of(const Shape& shape, int axis, int part, int parts) {
  Box box = Box::whole(shape);
  const auto begin = [&](int p) { return shape[axis] * p * p / (parts * parts); };
  box.offset[axis] = begin(part);
  box.extent[axis] = begin(part + 1) - begin(part);
  return box;
}

/// Returns the slices that this rank saves. Depending on the tensor's number, it is saved whole by one rank, or split
/// by rows or by columns.
TestSlices own_slices(const ProcessGroup& group) {
  TestSlices slices;
  for (std::size_t i = 0; i < model().size(); ++i) {
    const TestTensor& tensor = model()[i];
    const int kind = static_cast<int>(i % 3);
    if (kind == 2) {
      if (static_cast<int>(i) % group.size() == group.rank()) slices.add(tensor);
    } else {
      slices.add(tensor, part_of(tensor.shape, kind % tensor.shape.rank(), group.rank(), group.size()));
    }
  }
  return slices;
}

CheckpointHeader header(std::int64_t step) {
  return {
      .run_uuid = "0c5f", .step = step, .mesh = "pp1 dp2 tp1", .config = "[run]\nseed = 1\n", .trainer_state = "{}"};
}

void write(const ProcessGroup& group, const fs::path& root, std::int64_t step, const CheckpointProbe& probe = {}) {
  const TestSlices slices = own_slices(group);
  write_checkpoint(group, root, header(step), slices.get(), probe);
}

/// Collective. Returns the message of the Error that `action` throws, after checking that it is the same on all ranks.
std::string common_error(const ProcessGroup& group, const std::function<void()>& action, ExitCode code) {
  std::string message = "no error";
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    message = error.what();
  }
  for (const std::string& other : group.all_gather(message)) EXPECT_EQ(other, message);
  return message;
}

TEST(CheckpointRanks, AnySplitReadsWhatAnyOtherWrote) {
  const ProcessGroup world = test_world();
  const SharedDirectory root(world);
  write(world, root.path(), 7);
  const CheckpointReader reader(root.path() / "step-00000007", 2);
  EXPECT_EQ(reader.header().step, 7);
  EXPECT_EQ(reader.tensors().size(), model().size());
  for (const TestTensor& tensor : model()) {
    EXPECT_TRUE(same_bits(read_box(reader, tensor.name, Box::whole(tensor.shape)),
                          test_values(tensor, Box::whole(tensor.shape))));
    for (int axis = 0; axis < tensor.shape.rank(); ++axis) {
      for (const int parts : {1, 2, 3, 5}) {
        for (int part = 0; part < parts; ++part) {
          const Box box = part_of(tensor.shape, axis, part, parts);
          EXPECT_TRUE(same_bits(read_box(reader, tensor.name, box), test_values(tensor, box)))
              << tensor.name << box.text();
        }
      }
    }
  }
  EXPECT_EQ(reader.problem(), "");
}

TEST(CheckpointRanks, OneRankThatFailsFailsAllAndChangesNothing) {
  const ProcessGroup world = test_world();
  const SharedDirectory root(world);
  write(world, root.path(), 1);
  const int last = world.size() - 1;
  for (const std::string phase : {"plan", "shard", "digest"}) {
    const auto probe = [&](std::string_view now) {
      if (now == phase && world.rank() == last) throw std::runtime_error("the disk is gone");
    };
    const std::string message = common_error(
        world, [&] { write(world, root.path(), 2, probe); }, ExitCode::failed);
    EXPECT_THAT(message, HasSubstr(fmt::format("rank {}: the disk is gone", last)));
    EXPECT_THAT(message, HasSubstr("step-00000002"));
    EXPECT_EQ(list_checkpoints(root.path()), std::vector<std::string>{"step-00000001"});
    EXPECT_FALSE(fs::exists(root.path() / "step-00000002.partial"));
  }
  write(world, root.path(), 2);
  EXPECT_EQ(CheckpointReader(root.path() / "step-00000002").problem(), "");
}

TEST(CheckpointRanks, RanksWaitLongerForFilesThanForMessages) {
  const ProcessGroup world = test_world(), hasty = hasty_world(2);
  if (world.size() != 2) GTEST_SKIP() << "two ranks are enough to wait for";
  const SharedDirectory root(world);
  std::set<std::string> passed;
  const auto slow = [&](std::string_view phase) {  // a slow file system, once in each phase
    const bool file_work = phase != "plan" && phase != "read";
    if (world.rank() == 0 && file_work && passed.emplace(phase).second) {
      std::this_thread::sleep_for(std::chrono::seconds(3));
    }
  };
  EXPECT_NO_THROW(write(hasty, root.path(), 1, slow));
  EXPECT_EQ(passed.size(), world.rank() == 0 ? 7u : 0u);
  EXPECT_EQ(list_checkpoints(root.path()), std::vector<std::string>{"step-00000001"});
  world.barrier();
}

TEST(CheckpointRanks, AFullDiskOnOneRankIsNamed) {
  const ProcessGroup world = test_world();
  const SharedDirectory root(world);
  write(world, root.path(), 1);
  const int last = world.size() - 1;
  const rlim_t size = fs::file_size(root.path() / "step-00000001" / shard_name(last));
  for (const rlim_t limit : {rlim_t{100}, size / 2, size - 1}) {
    const auto save = [&] {
      std::optional<FileSizeLimit> full;
      if (world.rank() == last) full.emplace(limit);
      write(world, root.path(), 2);
    };
    const std::string message = common_error(world, save, ExitCode::failed);
    EXPECT_THAT(message, HasSubstr(fmt::format("rank {}: ", last))) << limit;
    EXPECT_THAT(message, HasSubstr("File too large")) << limit;
    EXPECT_THAT(message, HasSubstr(".h5")) << limit;
  }
  std::string latest;
  std::ifstream(root.path() / "LATEST") >> latest;
  EXPECT_EQ(latest, "step-00000001");
  EXPECT_EQ(CheckpointReader(root.path() / "step-00000001").problem(), "");
  write(world, root.path(), 2);
  EXPECT_EQ(CheckpointReader(root.path() / "step-00000002").problem(), "");
}

/// A background checkpoint whose threads wait before they write, until they are released.
class HeldCheckpoint {
 public:
  HeldCheckpoint(const ProcessGroup& group, const fs::path& root, std::int64_t step, const CheckpointProbe& probe = {})
      : slices_(own_slices(group)), checkpoint_(group, root, header(step), slices_.get(), [this, probe](auto phase) {
          if (phase == "shard") held_.wait();
          if (probe) probe(phase);
        }) {
    slices_.clear();
  }
  ~HeldCheckpoint() { let_go(); }
  void let_go() {
    if (!held_.try_wait()) held_.count_down();
  }
  std::string publish() {
    let_go();
    return checkpoint_.publish();
  }
  bool written() const { return checkpoint_.written(); }

 private:
  std::latch held_{1};
  TestSlices slices_;
  BackgroundCheckpoint checkpoint_;
};

TEST(CheckpointRanks, InTheBackgroundTheSameFilesAreWrittenOfWhatItWas) {
  const ProcessGroup world = test_world();
  const SharedDirectory root(world);
  const fs::path at_once = root.path() / "at once", later = root.path() / "later";
  for (const int step : {1, 2}) {
    write(world, at_once, step);
    HeldCheckpoint checkpoint(world, later, step);
    EXPECT_FALSE(checkpoint.written());
    EXPECT_FALSE(fs::exists(later / checkpoint_name(step)));
    EXPECT_EQ(checkpoint.publish(), "");
    EXPECT_TRUE(checkpoint.written());
    expect_same_checkpoint(later / checkpoint_name(step), at_once / checkpoint_name(step));
    EXPECT_EQ(read_whole_file(later / "LATEST"), checkpoint_name(step) + "\n");
    EXPECT_FALSE(fs::exists(later / (checkpoint_name(step) + ".partial")));
    world.barrier();
  }
}

TEST(CheckpointRanks, WhatFailsInTheBackgroundOfOneRankFailsAllAndChangesNothing) {
  const ProcessGroup world = test_world();
  const SharedDirectory root(world);
  write(world, root.path(), 1);
  const int last = world.size() - 1;
  const auto expect_failure = [&](const std::function<void()>& publish, const std::string& cause) {
    const std::string message = common_error(world, publish, ExitCode::failed);
    EXPECT_THAT(message, HasSubstr(fmt::format("step-00000002 was not saved: rank {}: ", last)));
    EXPECT_THAT(message, HasSubstr(cause));
    EXPECT_EQ(list_checkpoints(root.path()), std::vector<std::string>{"step-00000001"});
    EXPECT_EQ(read_whole_file(root.path() / "LATEST"), "step-00000001\n");
    EXPECT_FALSE(fs::exists(root.path() / "step-00000002.partial"));
    world.barrier();
  };
  for (const std::string phase : {"copy", "read", "shard", "digest"}) {
    HeldCheckpoint checkpoint(world, root.path(), 2, [&](std::string_view now) {
      if (now == phase && world.rank() == last) throw std::runtime_error("the disk is gone");
    });
    expect_failure([&] { checkpoint.publish(); }, "the disk is gone");
  }
  const rlim_t size = fs::file_size(root.path() / "step-00000001" / shard_name(last));
  for (const rlim_t limit : {rlim_t{100}, size / 2, size - 1}) {
    HeldCheckpoint checkpoint(world, root.path(), 2);
    std::optional<FileSizeLimit> full;
    if (world.rank() == last) full.emplace(limit);
    expect_failure([&] { checkpoint.publish(); }, "File too large");
  }
  EXPECT_EQ(HeldCheckpoint(world, root.path(), 2).publish(), "");
  EXPECT_EQ(CheckpointReader(root.path() / "step-00000002").problem(), "");
}

TEST(CheckpointRanks, WhatIsNotPublishedIsMended) {
  const ProcessGroup world = test_world();
  const SharedDirectory root(world);
  write(world, root.path(), 1);
  { HeldCheckpoint(world, root.path(), 2); }
  world.barrier();
  EXPECT_TRUE(fs::exists(root.path() / "step-00000002.partial"));
  EXPECT_EQ(list_checkpoints(root.path()), std::vector<std::string>{"step-00000001"});
  world.barrier();
  if (world.rank() == 0) repair_checkpoints(root.path());
  world.barrier();
  EXPECT_FALSE(fs::exists(root.path() / "step-00000002.partial"));
  EXPECT_EQ(HeldCheckpoint(world, root.path(), 2).publish(), "");
  EXPECT_EQ(CheckpointReader(root.path() / "step-00000002").problem(), "");
}

TEST(CheckpointRanks, PiecesThatDoNotCoverOnceAreNamed) {
  const ProcessGroup world = test_world();
  if (world.size() == 1) GTEST_SKIP() << "needs two ranks";
  const SharedDirectory root(world);
  const auto save = [&](const std::function<void(TestSlices&)>& change) {
    return common_error(
        world,
        [&] {
          TestSlices slices = own_slices(world);
          change(slices);
          write_checkpoint(world, root.path(), header(1), slices.get());
        },
        ExitCode::failed);
  };
  const TestTensor tensor = model()[2];  // saved whole by one rank
  const std::string twice = save([&](TestSlices& slices) {
    const bool owner = 2 % world.size() == world.rank();
    if (!owner && world.rank() == (2 + 1) % world.size()) slices.add(tensor, part_of(tensor.shape, 0, 1, 2));
  });
  EXPECT_THAT(twice, testing::AllOf(HasSubstr(tensor.name), HasSubstr("overlap"), HasSubstr("rank 0")));
  const std::string hole = save([&](TestSlices& slices) {
    std::erase_if(slices.get(), [&](const CheckpointSlice& slice) { return slice.name == tensor.name; });
    if (world.rank() == 1) slices.add(tensor, part_of(tensor.shape, 0, 1, 2));
  });
  EXPECT_THAT(hole, testing::AllOf(HasSubstr(tensor.name), HasSubstr("36 of 156 elements are in no box")));
  const std::string shapes = save([&](TestSlices& slices) {
    if (world.rank() == 1) slices.add({tensor.name, {2, 2}});
  });
  EXPECT_THAT(shapes, testing::AllOf(HasSubstr(tensor.name), HasSubstr("[13, 12]"), HasSubstr("[2, 2]")));
  EXPECT_TRUE(list_checkpoints(root.path()).empty());
}

TEST(CheckpointRanks, AutoFallsBackTogetherAndNamesTheDamage) {
  const ProcessGroup world = test_world();
  const SharedDirectory root(world);
  std::vector<std::string> warnings;
  const auto choose = [&](const std::string& resume) {
    warnings.clear();
    const auto chosen =
        choose_checkpoint(world, root.path(), resume, [&](const std::string& text) { warnings.push_back(text); });
    return chosen ? std::optional(chosen->directory()) : std::nullopt;
  };
  EXPECT_EQ(choose("auto"), std::nullopt);
  for (const int step : {1, 2, 3}) write(world, root.path(), step);
  EXPECT_EQ(choose("none"), std::nullopt);
  EXPECT_EQ(choose("auto"), root.path() / "step-00000003");
  EXPECT_TRUE(warnings.empty());
  world.barrier();
  const std::string damaged = shard_name(world.size() - 1);
  if (world.rank() == 0) {
    std::fstream file(root.path() / "step-00000003" / damaged, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(700);
    const char byte = static_cast<char>(file.get() ^ 4);
    file.seekp(700);
    file.put(byte);
    fs::remove(root.path() / "step-00000002" / damaged);
  }
  world.barrier();
  EXPECT_EQ(choose("auto"), root.path() / "step-00000001");
  EXPECT_EQ(warnings.size(), world.rank() == 0 ? 2u : 0u);
  if (world.rank() == 0) {
    EXPECT_THAT(warnings[0], testing::AllOf(HasSubstr("step-00000003"), HasSubstr(damaged), HasSubstr("SHA-256")));
    EXPECT_THAT(warnings[1], testing::AllOf(HasSubstr("step-00000002"), HasSubstr(damaged), HasSubstr("missing")));
  }
  const std::string path = (root.path() / "step-00000002").string();
  EXPECT_THAT(common_error(
                  world, [&] { choose(path); }, ExitCode::bad_input),
              HasSubstr(damaged));
  EXPECT_THAT(common_error(
                  world, [&] { choose(path + "x"); }, ExitCode::bad_input),
              HasSubstr("no such"));
  EXPECT_EQ(choose((root.path() / "step-00000001").string()), root.path() / "step-00000001");
}

/// h5py must read these tensors from the index.h5 of a checkpoint with the header header(12).
void expect_h5py_sees(const fs::path& index, const std::vector<TestTensor>& tensors) {
  const char* python = std::getenv("LYCEUM_PYTHON");
  ASSERT_TRUE(python && fs::exists(python)) << "LYCEUM_PYTHON must name a Python with h5py: scripts/install-deps.sh";
  // The expected values are passed to check_index.py as a raw file.
  const fs::path expected = index.parent_path().parent_path() / "expected";
  std::ofstream list(expected.string() + ".txt"), raw(expected.string() + ".f32", std::ios::binary);
  for (const TestTensor& tensor : tensors) {
    list << tensor.name;
    for (const std::int64_t extent : tensor.shape.extents()) list << ' ' << extent;
    list << '\n';
    const std::vector<float> values = test_values(tensor, Box::whole(tensor.shape));
    raw.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(float)));
  }
  list.close();
  raw.close();
  const std::string command =
      fmt::format("'{}' '{}' '{}' '{}'", python, LYCEUM_SOURCE_DIR "/tests/io/checkpoint/check_index.py",
                  index.string(), expected.string());
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

// h5py must see whole tensors even after the directory was moved.
TEST(CheckpointRanks, H5pySeesWholeTensors) {
  const ProcessGroup world = test_world();
  const SharedDirectory root(world);
  write(world, root.path(), 12);
  if (world.rank() != 0) return;
  fs::rename(root.path() / "step-00000012", root.path() / "moved");
  expect_h5py_sees(root.path() / "moved" / "index.h5", model());
}

/// Many small tensors of which each rank saves some whole, some in part, and in another order than that of their names.
/// All except three are packed.
TEST(CheckpointRanks, ManyTensorsComeBack) {
  const ProcessGroup world = test_world();
  const SharedDirectory root(world);
  std::vector<TestTensor> tensors;
  for (int i = 0; i < 1200; ++i) {
    const Shape shape = i % 400 == 7 ? Shape{40, 512} : i % 3 ? Shape{2 + i % 4, 3} : Shape{5};
    tensors.push_back({fmt::format("model/layers/{}/mlp/experts/{}/gate_proj/weight", i % 5, i), shape});
  }
  TestSlices slices;
  for (std::size_t i = tensors.size(); i-- > 0;) {
    const auto owner = static_cast<int>(i) % world.size();
    if (i % 2) {
      slices.add(tensors[i], part_of(tensors[i].shape, 0, world.rank(), world.size()));
    } else if (owner == world.rank()) {
      slices.add(tensors[i]);
    }
  }
  write_checkpoint(world, root.path(), header(12), slices.get());
  const auto reader = choose_checkpoint(world, root.path(), "auto", {});
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->tensors().size(), tensors.size());
  for (const TestTensor& tensor : tensors) {
    const Box whole = Box::whole(tensor.shape), part = part_of(tensor.shape, 0, world.rank(), world.size());
    EXPECT_TRUE(same_bits(read_box(*reader, tensor.name, whole), test_values(tensor, whole))) << tensor.name;
    EXPECT_TRUE(same_bits(read_box(*reader, tensor.name, part), test_values(tensor, part))) << tensor.name;
  }
  if (world.rank() == 0) expect_h5py_sees(root.path() / "step-00000012" / "index.h5", tensors);
  world.barrier();
}

}  // namespace
}  // namespace lyceum
