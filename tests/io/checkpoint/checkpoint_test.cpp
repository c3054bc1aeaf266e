#include "io/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <map>
#include <random>

#include "io/checkpoint/manifest.h"
#include "io/checkpoint/summary.h"
#include "io/checkpoint/unit_tensors.h"
#include "io/files/atomic_file.h"
#include "io/files/hdf5.h"
#include "io/files/whole_file.h"
#include "support/checkpoint_model.h"
#include "support/errors.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<TestTensor>& model() {
  static const std::vector<TestTensor> tensors = {
      {"lm_head/weight", {37, 12}},          {"model/norm/weight", {1}},
      {"model/layers/0/cube", {2, 3, 4}},    {"model/empty", {0, 5}},
      {"model/layers/0/four", {2, 1, 3, 2}}, {"model/large", {700, 1031}},
  };
  return tensors;
}

TestSlices model_slices() {
  TestSlices slices;
  for (const TestTensor& tensor : model()) slices.add(tensor);
  return slices;
}

const CheckpointHeader header = {.run_uuid = "5e1f",
                                 .step = 100,
                                 .mesh = "pp1 dp1 tp1",
                                 .config = "[run]\nseed = 18446744073709551615\n\"quoted\" größe\n",
                                 .trainer_state = "{\"samples\": 9007199254740993, \"loss\": 0.1}",
                                 .job = BatchJob{.cluster = "lab",
                                                 .id = "17",
                                                 .name = "a \"name\"",
                                                 .partition = "p",
                                                 .user = "u",
                                                 .nodes = "n[1-4]",
                                                 .restarts = 3}};

/// Slices of model() of which those named are stored in bf16. Their values are rounded to bf16 by `make`.
class HalfSlices {
 public:
  explicit HalfSlices(const std::vector<std::string>& halves) : slices_(model_slices()) {
    for (CheckpointSlice& slice : slices_.get()) {
      if (std::ranges::find(halves, slice.name) == halves.end()) continue;
      slice.type = DType::bf16;
      slice.make = [values = std::exchange(slice.values, nullptr),
                    count = slice.box.extent.size()](std::span<float> to) {
        for (std::int64_t i = 0; i < count; ++i) to[static_cast<std::size_t>(i)] = rounded(values[i]);
      };
    }
  }
  static float rounded(float x) { return static_cast<float>(bfloat16(x)); }
  const std::vector<CheckpointSlice>& get() const { return slices_.get(); }

 private:
  TestSlices slices_;
};

class Checkpoint : public testing::Test {
 protected:
  std::string save(std::int64_t step, const CheckpointProbe& probe = {}, const std::string& unsound = {}) {
    static const TestSlices slices = model_slices();
    CheckpointHeader head = header;
    head.step = step;
    head.unsound = unsound;
    return write_checkpoint(group_, root(), head, slices.get(), probe);
  }
  fs::path root() const { return directory_.path() / "checkpoints"; }
  fs::path at(std::int64_t step) const { return root() / checkpoint_name(step); }
  std::string latest() const { return read_whole_file(root() / "LATEST"); }
  /// Returns all files and directories in the root: the name and, for files, the bytes.
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(root())) {
      files[entry.path().string()] = entry.is_regular_file() ? read_whole_file(entry.path()) : "";
    }
    return files;
  }
  std::optional<fs::path> choose(const std::string& resume) {
    warnings_.clear();
    const auto chosen =
        choose_checkpoint(group_, root(), resume, [&](const std::string& text) { warnings_.push_back(text); });
    return chosen ? std::optional(chosen->directory()) : std::nullopt;
  }

  TemporaryDirectory directory_;
  ProcessGroup group_ = ProcessGroup::self();
  std::vector<std::string> warnings_;
};

void flip_bit(const fs::path& path, std::size_t bit) {
  std::string bytes = read_whole_file(path);
  bytes.at(bit / 8) = static_cast<char>(bytes.at(bit / 8) ^ (1 << (bit % 8)));
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Replaces text in the manifest and updates the digest of the manifest, as a faulty program might write it.
void forge(const fs::path& directory, const std::string& from, const std::string& to) {
  std::string text = read_whole_file(directory / manifest_name);
  const std::size_t place = text.find(from);
  ASSERT_NE(place, std::string::npos) << from;
  text.replace(place, from.size(), to);
  text.erase(text.rfind("\"manifest_sha256\""));
  std::ofstream(directory / manifest_name) << text << "\"manifest_sha256\": \"" << sha256(text) << "\"\n}\n";
}

/// Tensors in bf16 are read as f32 with the same values, in whole and in parts. They are stored in two bytes.
TEST_F(Checkpoint, StoresTensorsInBf16) {
  const HalfSlices slices({"model/large", "model/layers/0/cube", "model/empty"});
  write_checkpoint(group_, root(), header, slices.get());
  const CheckpointReader reader(at(header.step));
  EXPECT_EQ(reader.problem(), "");
  const std::vector<std::pair<std::string, Box>> boxes{{"model/large", Box::whole({700, 1031})},
                                                       {"model/large", {{5, 1000}, {690, 31}}},
                                                       {"model/large", {{699, 0}, {1, 1}}},
                                                       {"model/layers/0/cube", Box::whole({2, 3, 4})},
                                                       {"model/layers/0/cube", {{0, 1, 2}, {2, 2, 1}}},
                                                       {"lm_head/weight", Box::whole({37, 12})}};
  for (const auto& [name, box] : boxes) {
    const auto tensor = std::ranges::find(model(), name, &TestTensor::name);
    std::vector<float> expected = test_values(*tensor, box);
    const bool half = name != "lm_head/weight";
    if (half) std::ranges::transform(expected, expected.begin(), HalfSlices::rounded);
    EXPECT_TRUE(same_bits(read_box(reader, name, box), expected)) << name << box.text();
    EXPECT_EQ(reader.find(name)->type, half ? DType::bf16 : DType::f32) << name;
  }
  const hdf5::File shard = hdf5::File::open(at(header.step) / shard_name(0)),
                   index = hdf5::File::open(at(header.step) / index_name);
  EXPECT_EQ(shard.dataset("model/large").dtype(), DType::bf16);
  EXPECT_EQ(index.dataset("model/large").dtype(), DType::bf16);
  EXPECT_EQ(shard.dataset("packed[f32]").dtype(), DType::f32);
  EXPECT_EQ(shard.dataset("packed[bf16]").dtype(), DType::bf16);
  save(101);
  EXPECT_LT(reader.bytes(), CheckpointReader(at(101)).bytes() - 700 * 1031);
}

TEST_F(Checkpoint, SavesTensorsInBf16InTheBackground) {
  const HalfSlices slices({"model/large", "model/norm/weight"});
  BackgroundCheckpoint background(group_, root(), header, slices.get());
  EXPECT_EQ(background.publish(), "");
  const TemporaryDirectory other;
  write_checkpoint(group_, other.path(), header, slices.get());
  expect_same_checkpoint(at(header.step), other.path() / checkpoint_name(header.step));
}

TEST_F(Checkpoint, TakesItsTokenizerAlong) {
  save(100);
  EXPECT_EQ(CheckpointReader(at(100)).tokenizer_sha256(), "");
  EXPECT_THROW(CheckpointReader(at(100)).tokenizer(), Error);
  static const TestSlices slices = model_slices();
  CheckpointHeader head = header;
  head.tokenizer = std::string("a model\0of words", 16);
  write_checkpoint(group_, root(), head, slices.get());
  const CheckpointReader reader(at(100));
  EXPECT_EQ(reader.problem(), "");
  EXPECT_EQ(reader.tokenizer_sha256(), sha256(head.tokenizer));
  EXPECT_EQ(read_whole_file(reader.tokenizer()), head.tokenizer);
  flip_bit(at(100) / tokenizer_name, 12);
  EXPECT_THROW(reader.tokenizer(), Error);
  EXPECT_THAT(reader.problem(), HasSubstr("tokenizer.model: damaged"));
}

TEST_F(Checkpoint, ARunsFolderStandsForItsCheckpoints) {
  save(100);
  save(200);
  for (const fs::path& path : {directory_.path(), root(), at(200)}) EXPECT_EQ(resolve_checkpoint(path), at(200));
  EXPECT_EQ(checkpoint_root_in(directory_.path()), root());
  EXPECT_EQ(checkpoint_root_in(root()), root());
}

TEST_F(Checkpoint, AManifestThatNestsDeeplyIsRefusedUnparsed) {
  save(100);
  for (const char* const level : {"[", "{\"a\":"}) {
    std::string text = "{\"tensors\":";
    for (int i = 0; i < 1 << 20; ++i) text += level;
    std::ofstream(at(100) / manifest_name, std::ios::binary) << text;
    expect_bad_input([&] { CheckpointReader reader(at(100)); }, "manifest.json: damaged: it nests");
  }
}

TEST_F(Checkpoint, ComesBackBitwise) {
  save(100);
  const CheckpointReader reader(at(100));
  EXPECT_EQ(reader.header().run_uuid, header.run_uuid);
  EXPECT_EQ(reader.header().step, 100);
  EXPECT_EQ(reader.header().mesh, header.mesh);
  EXPECT_EQ(reader.header().config, header.config);
  EXPECT_EQ(reader.header().trainer_state, header.trainer_state);
  ASSERT_TRUE(reader.header().job);
  EXPECT_EQ(text_of(*reader.header().job), text_of(*header.job));
  EXPECT_EQ(reader.problem(), "");
  ASSERT_EQ(reader.tensors().size(), model().size());
  EXPECT_TRUE(std::is_sorted(reader.tensors().begin(), reader.tensors().end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
  for (const TestTensor& tensor : model()) {
    ASSERT_NE(reader.find(tensor.name), nullptr);
    EXPECT_EQ(reader.find(tensor.name)->shape, tensor.shape);
    const Box whole = Box::whole(tensor.shape);
    EXPECT_TRUE(same_bits(read_box(reader, tensor.name, whole), test_values(tensor, whole))) << tensor.name;
  }
  EXPECT_EQ(reader.find("model"), nullptr);
  EXPECT_EQ(latest(), "step-00000100\n");
  EXPECT_THAT(list_checkpoints(root()), ElementsAre("step-00000100"));
}

TEST_F(Checkpoint, BoxesInTheMiddleAreRead) {
  save(1);
  const CheckpointReader reader(at(1));
  const TestTensor& cube = model()[2];
  for (std::int64_t a = 0; a < 3; ++a) {
    for (std::int64_t b = a; b <= 3; ++b) {
      const Box box{{1, a, 1}, {1, b - a, 2}};
      EXPECT_TRUE(same_bits(read_box(reader, cube.name, box), test_values(cube, box))) << box.text();
    }
  }
}

TEST_F(Checkpoint, SeveralBoxesOfOneTensorOnOneRank) {
  const TestTensor tensor{"w", {5, 6}};
  TestSlices slices;
  for (const Box& box :
       {Box{{0, 0}, {2, 4}}, Box{{0, 4}, {5, 2}}, Box{{2, 0}, {3, 1}}, Box{{2, 1}, {3, 3}}, Box{{3, 3}, {0, 2}}}) {
    slices.add(tensor, box);
  }
  write_checkpoint(group_, root(), header, slices.get());
  const CheckpointReader reader(at(100));
  for (const Box& box : {Box::whole(tensor.shape), Box{{1, 3}, {3, 2}}, Box{{4, 0}, {1, 6}}}) {
    EXPECT_TRUE(same_bits(read_box(reader, "w", box), test_values(tensor, box))) << box.text();
  }
}

TEST_F(Checkpoint, WrongPiecesAreNamed) {
  const TestTensor w{"w", {4, 4}};
  const auto save_boxes = [&](std::initializer_list<Box> boxes) {
    TestSlices slices;
    for (const Box& box : boxes) slices.add(w, box);
    return error_of([&] { write_checkpoint(group_, root(), header, slices.get()); }, ExitCode::failed);
  };
  EXPECT_THAT(save_boxes({{{0, 0}, {2, 4}}}), HasSubstr("tensor w [4, 4]: 8 of 16 elements are in no box"));
  EXPECT_THAT(save_boxes({{{0, 0}, {3, 4}}, {{2, 0}, {2, 4}}}),
              HasSubstr("box [0:3,0:4] of rank 0 and box [2:4,0:4] of rank 0 overlap"));
  EXPECT_THAT(save_boxes({{{0, 0}, {4, 4}}, {{0, 0}, {4, 4}}}), HasSubstr("overlap"));
  EXPECT_THAT(save_boxes({{{0, 0}, {5, 4}}}), HasSubstr("outside"));
  // The number of elements is right, but one row is covered twice and one is not covered.
  EXPECT_THAT(save_boxes({{{0, 0}, {2, 4}}, {{1, 0}, {2, 4}}}), HasSubstr("overlap"));
  const auto save_named = [&](std::initializer_list<std::string> names) {
    TestSlices slices;
    for (const std::string& name : names) slices.add({name, {2}});
    return error_of([&] { write_checkpoint(group_, root(), header, slices.get()); }, ExitCode::failed);
  };
  for (const std::string name : {"", "/a", "a//b", "a/", "a/../b", ".", "a[0:1]", "a\nb"}) save_named({name});
  EXPECT_THAT(save_named({"a/b", "a"}), HasSubstr("tensor a/b is inside tensor a"));
  EXPECT_TRUE(list_checkpoints(root()).empty());
}

TEST_F(Checkpoint, NoTensorsAtAllIsACheckpoint) {
  write_checkpoint(group_, root(), header, {});
  EXPECT_EQ(CheckpointReader(at(100)).problem(), "");
  EXPECT_TRUE(CheckpointReader(at(100)).tensors().empty());
}

TEST_F(Checkpoint, DamageIsNamedAndNeverRead) {
  const auto shard = at(1) / "rank-00000.h5";
  const auto read_error = [&] {
    return error_of([&] { read_box(CheckpointReader(at(1)), "model/norm/weight", {{0}, {1}}); }, ExitCode::bad_input);
  };
  save(1);
  flip_bit(shard, 5000);
  EXPECT_THAT(read_error(), AllOf(HasSubstr(shard.string()), HasSubstr("SHA-256")));
  save(1);
  fs::resize_file(shard, fs::file_size(shard) - 1);
  EXPECT_THAT(read_error(), AllOf(HasSubstr(shard.string()), HasSubstr("truncated")));
  save(1);
  fs::remove(shard);
  EXPECT_THAT(read_error(), AllOf(HasSubstr(shard.string()), HasSubstr("missing")));
  save(1);
  fs::remove(at(1) / "index.h5");
  EXPECT_THAT(CheckpointReader(at(1)).problem(), HasSubstr("index.h5: missing"));
  EXPECT_TRUE(same_bits(read_box(CheckpointReader(at(1)), "model/norm/weight", {{0}, {1}}),
                        test_values(model()[1], {{0}, {1}})));
}

/// Padding between the rows of a matrix is read as 0, whatever was read before.
TEST_F(Checkpoint, PaddingIsReadAsZero) {
  ParameterUnit unit{"unit", ParameterUnit::Group::dense};
  const std::vector<TestTensor> tensors = {{"a", {5, 12}}, {"b", {5, 10}}};
  TestSlices slices;
  for (const TestTensor& tensor : tensors) {
    slices.add(tensor);
    unit.add(sharded_parameter(tensor.name, tensor.shape, 1, {0, tensor.shape[1]}, 0, 16));
  }
  write_checkpoint(group_, root(), header, slices.get());
  const CheckpointReader reader(at(100));
  const Stream stream = CpuStream();
  const Tensor values = Tensor::zeros(stream, DType::f32, {unit.size()});
  read_range(reader, stream, unit, "", {0, unit.size()}, values);
  for (std::size_t p = 0; p < tensors.size(); ++p) {
    const std::int64_t first = unit.first_of(p), columns = tensors[p].shape[1];
    for (std::int64_t i = 0; i < 5 * 16; ++i) {
      const float expected = i % 16 < columns ? test_value(tensors[p].name, i / 16 * columns + i % 16) : 0;
      EXPECT_EQ(std::bit_cast<std::uint32_t>(values.data<float>()[first + i]), std::bit_cast<std::uint32_t>(expected))
          << tensors[p].name << ' ' << i;
    }
  }
}

TEST_F(Checkpoint, BadManifestsAreRefused) {
  const auto open_error = [&] { return error_of([&] { CheckpointReader reader(at(1)); }, ExitCode::bad_input); };
  const std::string path = (at(1) / "manifest.json").string();
  save(1);
  forge(at(1), "\"format_version\": 3", "\"format_version\": 4");
  EXPECT_THAT(open_error(), AllOf(HasSubstr(path), HasSubstr("format_version 4")));
  fs::remove_all(at(1));  // a save does not replace a checkpoint of an unknown format
  save(1);
  forge(at(1), "lyceum-checkpoint", "other");
  EXPECT_THAT(open_error(), AllOf(HasSubstr(path), HasSubstr("format")));
  fs::remove_all(at(1));
  save(1);
  std::ofstream(path) << "{\"format\": ";
  EXPECT_THAT(open_error(), AllOf(HasSubstr(path), HasSubstr("damaged")));
  std::ofstream(path) << "";
  EXPECT_THAT(open_error(), HasSubstr(path));
  std::ofstream(path) << "[1, 2]";
  EXPECT_THAT(open_error(), HasSubstr(path));
  std::ofstream(path) << "{\"format\": \"lyceum-checkpoint\"}";
  EXPECT_THAT(open_error(), AllOf(HasSubstr(path), HasSubstr("format_version")));
  fs::remove(path);
  EXPECT_THAT(open_error(), AllOf(HasSubstr(path), HasSubstr("missing")));
  const std::vector<std::array<const char*, 3>> impossible = {
      {"\"shape\":[37,12]", "\"shape\":[4611686018427387904,12]", "more elements than any memory"},
      {"\"shape\":[1]", "\"shape\":[4611686018427387904]", "more elements than any memory"},
      {"\"shape\":[1]", "\"shape\":[99999999]", "too small for tensor model/norm/weight"},
      {"\"shape\":[1]", "\"shape\":[1e300]", "1e+300 is not an integer"},
      {"\"shape\":[1]", "\"shape\":[]", "has no dimensions"},
      {"\"files\"", "\"other\"", "there are only 0"},
      {"\"tensors\"", "\"other\"", "no list of tensors"},
      {"\"step\": 1", "\"step\": 1.5", "1.5 is not an integer"},
      {"\"step\": 1", "\"step\": -1", "step -1 is out of range"},
      {"\"step\": 1", "\"step\": 9223372036854775807", "is out of range"},
      {"\"bytes\":", "\"bytes\":-", "cannot have -"},
      {"\"bytes\":", "\"bytes\":9223372036854775807,\"was\":", "cannot have"}};
  for (const auto& [from, to, message] : impossible) {
    save(1);
    forge(at(1), from, to);
    EXPECT_THAT(open_error(), AllOf(HasSubstr(path), HasSubstr(message))) << to;
  }
  save(1);
  forge(at(1), "\"shape\":[1]", "\"shape\":[2]");
  EXPECT_THAT(CheckpointReader(at(1)).problem(), HasSubstr("model/norm/weight"));
  EXPECT_THAT(error_of(
                  [&] {
                    read_box(CheckpointReader(at(1)), "model/norm/weight", {{0}, {2}});
                  },
                  ExitCode::bad_input),
              HasSubstr("do not cover"));
  save(1);
  const std::string head = "[[0,\"packed[f32]\",[0,0],[37,12]";  // the first box, of lm_head/weight
  forge(at(1), head, "[[9,\"packed[f32]\",[0,0],[37,12]");
  EXPECT_THAT(open_error(), HasSubstr("file 9"));
  save(1);
  forge(at(1), head, "[[0,\"packed[f32]\",[1,0],[37,12]");
  EXPECT_THAT(open_error(), HasSubstr("outside"));
  save(1);
  forge(at(1), head, "[[0,\"packed[f32]\",[0,0],[-1,12]");
  EXPECT_THAT(open_error(), HasSubstr("extent -1"));
  for (const char* const first : {"-1", "4611686018427387904"}) {
    save(1);
    forge(at(1), head + ",0]", head + "," + first + "]");
    EXPECT_THAT(open_error(), HasSubstr(std::string("begins at element ") + first));
  }
  const auto read_head = [&] {
    return error_of(
        [&] {
          read_box(CheckpointReader(at(1)), "lm_head/weight", {{0, 0}, {1, 1}});
        },
        ExitCode::bad_input);
  };
  // Boxes that are not in the dataset, or in a dataset of another shape.
  for (const auto& [box, message] : {std::pair("\"packed[f32]\",[0,0],[37,12],1000000]", "[1000000:1000444]"),
                                     {"\"model/large\",[0,0],[37,12],0]", "[700, 1031]"},
                                     {"\"packed[f32]\",[0,0],[37,12]]", "[37, 12]"},
                                     {"\"model/none\",[0,0],[37,12],0]", "model/none"}}) {
    save(1);
    forge(at(1), head + ",0]", std::string("[[0,") + box);
    EXPECT_THAT(read_head(), AllOf(HasSubstr("rank-00000.h5"), HasSubstr(message))) << box;
  }
  save(1);
  forge(at(1), "\"name\":\"rank-00000.h5\"", "\"name\":\"../secret.h5\"");
  EXPECT_THAT(open_error(), HasSubstr("another directory"));
}

TEST_F(Checkpoint, WhatIsNotThereIsRefused) {
  save(1);
  const CheckpointReader reader(at(1));
  const std::string manifest = (at(1) / "manifest.json").string();
  EXPECT_THAT(error_of(
                  [&] {
                    read_box(reader, "model/none", {{0}, {1}});
                  },
                  ExitCode::bad_input),
              AllOf(HasSubstr(manifest), HasSubstr("model/none")));
  for (const Box& box : {Box{{36, 0}, {2, 12}}, Box{{0}, {1}}, Box{{38, 0}, {0, 0}}}) {
    EXPECT_THAT(error_of([&] { read_box(reader, "lm_head/weight", box); }, ExitCode::bad_input),
                AllOf(HasSubstr(manifest), HasSubstr("lm_head/weight")));
  }
}

TEST_F(Checkpoint, EveryFlippedBitIsFound) {
  save(1);
  std::mt19937_64 random(1);
  for (const auto& [name, flips] : {std::pair("rank-00000.h5", 200), std::pair("manifest.json", 100)}) {
    const fs::path path = at(1) / name;
    const std::string original = read_whole_file(path);
    for (int i = 0; i < flips; ++i) {
      std::string bytes = original;
      const std::size_t bit = random() % (8 * bytes.size());
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
      std::ofstream(path, std::ios::binary) << bytes;
      const std::string message = error_of(
          [&] {
            read_box(CheckpointReader(at(1)), "model/norm/weight", {{0}, {1}});
          },
          ExitCode::bad_input);
      EXPECT_THAT(message, HasSubstr(name)) << "bit " << bit;
    }
    std::ofstream(path, std::ios::binary) << original;
  }
  EXPECT_EQ(CheckpointReader(at(1)).problem(), "");
}

TEST_F(Checkpoint, AutoTakesTheNewestThatVerifies) {
  EXPECT_EQ(choose("auto"), std::nullopt);
  for (const int step : {9, 10, 100, 200}) save(step);
  EXPECT_EQ(choose("none"), std::nullopt);
  EXPECT_EQ(choose("auto"), at(200));
  flip_bit(at(200) / "rank-00000.h5", 12345);
  fs::remove(at(100) / "manifest.json");
  EXPECT_EQ(choose("auto"), at(10));
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("step-00000200"), HasSubstr("rank-00000.h5")),
                                     AllOf(HasSubstr("step-00000100"), HasSubstr("manifest.json"))));
  EXPECT_THAT(error_of([&] { choose(at(200)); }, ExitCode::bad_input), HasSubstr("rank-00000.h5"));
  EXPECT_THAT(error_of([&] { choose(root()); }, ExitCode::bad_input), HasSubstr("rank-00000.h5"));
  EXPECT_EQ(choose(at(9)), at(9));
  replace_file(root() / "LATEST", "step-00000010");
  EXPECT_EQ(choose(root()), at(10));
  EXPECT_THAT(error_of([&] { choose(directory_.path() / "no"); }, ExitCode::bad_input), HasSubstr("no such"));
  EXPECT_THAT(error_of([&] { choose(TemporaryDirectory().path()); }, ExitCode::bad_input), HasSubstr("neither"));
}

TEST_F(Checkpoint, PruneKeepsTheNewestAndWhatIsForeign) {
  for (const int step : {1, 2, 3, 4, 5}) save(step);
  fs::create_directory(root() / "step-12");
  fs::create_directory(root() / "step-00000000-backup");
  fs::create_directory(root() / "step-00000099.partial");
  fs::create_directory(root() / "notes.partial");
  std::ofstream(root() / "step-00000000") << "a file";
  prune_checkpoints(root(), 0);
  EXPECT_EQ(list_checkpoints(root()).size(), 5u);
  EXPECT_FALSE(fs::exists(root() / "step-00000099.partial"));
  prune_checkpoints(root(), 3);
  EXPECT_THAT(list_checkpoints(root()), ElementsAre("step-00000005", "step-00000004", "step-00000003"));
  fs::remove(at(5) / "rank-00000.h5");  // no longer complete, so it is not counted
  prune_checkpoints(root(), 1);
  EXPECT_THAT(list_checkpoints(root()), ElementsAre("step-00000005", "step-00000004"));
  save(2);  // as a new run in an old directory: LATEST names it, so it stays although it is not the newest
  prune_checkpoints(root(), 1);
  EXPECT_THAT(list_checkpoints(root()), ElementsAre("step-00000005", "step-00000004", "step-00000002"));
  for (const char* name : {"step-12", "step-00000000-backup", "notes.partial", "step-00000000"}) {
    EXPECT_TRUE(fs::exists(root() / name)) << name;
  }
  prune_checkpoints(directory_.path() / "none", 1);
}

TEST_F(Checkpoint, TheNewestSoundOneIsKeptAndGoneBackTo) {
  for (const int step : {10, 20}) save(step);
  for (const int step : {30, 40, 50}) {
    save(step, {}, "the loss was 9.00");
    prune_checkpoints(root(), 1);
  }
  EXPECT_THAT(list_checkpoints(root()), ElementsAre("step-00000050", "step-00000020"));
  EXPECT_EQ(CheckpointReader(at(50)).header().unsound, "the loss was 9.00");
  EXPECT_EQ(choose("auto"), at(20));
  EXPECT_THAT(warnings_,
              ElementsAre("resuming from step-00000020, the newest sound checkpoint: step-00000050 is not sound: "
                          "the loss was 9.00 (checkpoint.resume = PATH selects another)"));
  EXPECT_EQ(choose(at(50)), at(50));
  // The run continues from step 20. The checkpoints from which it went back are neither counted nor removed.
  set_latest(root(), "step-00000020");
  save(30);
  prune_checkpoints(root(), 1);
  EXPECT_THAT(list_checkpoints(root()), ElementsAre("step-00000050", "step-00000030"));
  EXPECT_EQ(choose("auto"), at(30));
  // If no sound checkpoint passes verification, the newest one that does is taken.
  flip_bit(at(30) / "rank-00000.h5", 12345);
  EXPECT_EQ(choose("auto"), at(50));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("step-00000030 is skipped"), HasSubstr("no checkpoint is sound")));
}

TEST_F(Checkpoint, TimedOnesAreNotCountedAgainstTheOthers) {
  static const TestSlices slices = model_slices();
  const auto save_timed = [&](std::int64_t step) {
    CheckpointHeader head = header;
    head.step = step;
    head.timed = true;
    write_checkpoint(group_, root(), head, slices.get());
  };
  save(1);
  save_timed(2);
  save(3);
  save_timed(4);
  save_timed(5);
  EXPECT_TRUE(CheckpointReader(at(5)).header().timed);
  EXPECT_FALSE(CheckpointReader(at(3)).header().timed);
  prune_checkpoints(root(), 2);
  EXPECT_THAT(list_checkpoints(root()),
              ElementsAre("step-00000005", "step-00000004", "step-00000003", "step-00000001"));
  prune_checkpoints(root(), 0);
  EXPECT_THAT(list_checkpoints(root()), ElementsAre("step-00000005", "step-00000003", "step-00000001"));
  save(6);
  prune_checkpoints(root(), 0);
  EXPECT_THAT(list_checkpoints(root()), ElementsAre("step-00000006", "step-00000003", "step-00000001"));
  save_timed(7);
  prune_checkpoints(root(), 1);
  EXPECT_THAT(list_checkpoints(root()), ElementsAre("step-00000007", "step-00000006"));
}

TEST_F(Checkpoint, WhatAnotherBuildWroteIsNeitherReplacedNorRemoved) {
  for (const int step : {1, 2, 3}) save(step);
  for (const int step : {1, 3}) forge(at(step), "\"format_version\": 3", "\"format_version\": 4");
  const std::string manifest = read_whole_file(at(3) / "manifest.json");
  EXPECT_THAT(
      error_of([&] { choose("auto"); }, ExitCode::bad_input),
      AllOf(HasSubstr("step-00000003/manifest.json: unknown format_version 4"), HasSubstr("set another run.dir")));
  EXPECT_THAT(error_of([&] { save(3); }, ExitCode::failed), HasSubstr("format_version 4"));
  prune_checkpoints(root(), 1);
  EXPECT_THAT(list_checkpoints(root()), ElementsAre("step-00000003", "step-00000002", "step-00000001"));
  EXPECT_EQ(read_whole_file(at(3) / "manifest.json"), manifest);
  fs::rename(at(3), directory_.path() / "elsewhere");
  EXPECT_EQ(choose("auto"), at(2));  // an older checkpoint of unknown format is ignored
}

TEST_F(Checkpoint, AFailureAfterPublicationIsNoFailureToSave) {
  save(1);
  const std::string complaint = save(2, [](std::string_view phase) {
    if (phase == "latest") throw std::runtime_error("lightning");
  });
  EXPECT_THAT(complaint, AllOf(HasSubstr("step-00000002 was saved"), HasSubstr("lightning")));
  EXPECT_EQ(latest(), "step-00000001\n");
  EXPECT_EQ(choose("auto"), at(2));
  set_latest(root(), "step-00000002");
  EXPECT_EQ(latest(), "step-00000002\n");
}

TEST_F(Checkpoint, LeftoversOfKilledRunsAreMended) {
  for (const int step : {1, 2, 3}) save(step);
  fs::rename(at(2), root() / "step-00000002.replaced");  // as left by a file system that cannot exchange two names
  fs::create_directory(root() / "step-00000002.partial");
  fs::copy(at(1), root() / "step-00000001.replaced");
  fs::copy(at(1), root() / "step-00000000.removing");
  fs::create_directory(at(7));
  fs::create_directory(at(8));
  std::ofstream(at(8) / "notes") << "somebody's";
  fs::create_directory_symlink(at(3), at(9));
  repair_checkpoints(root());
  EXPECT_THAT(list_checkpoint_directories(root()),
              ElementsAre("step-00000009", "step-00000008", "step-00000003", "step-00000002", "step-00000001"));
  EXPECT_EQ(CheckpointReader(at(2)).problem(), "");
  EXPECT_EQ(std::distance(fs::directory_iterator(root()), {}), 6);  // five checkpoints and LATEST
}

TEST_F(Checkpoint, WhatCannotBeListedIsNotTakenForEmpty) {
  fs::remove_all(root());
  EXPECT_TRUE(list_checkpoints(root()).empty());
  fs::create_symlink(root().filename(), root());  // a link to itself cannot be read by any user, not even root
  for (const auto& act :
       {+[](const fs::path& at) { list_checkpoints(at); }, +[](const fs::path& at) { repair_checkpoints(at); },
        +[](const fs::path& at) { prune_checkpoints(at, 1); }}) {
    expect_failure([&] { act(root()); }, root().string() + ": cannot be listed: ");
  }
  expect_failure([&] { choose("auto"); }, "cannot be listed");
  fs::remove(root());
  std::ofstream(root()) << "a file";
  expect_failure([&] { choose("auto"); }, root().string() + ": cannot be listed: ");
  fs::remove(root());
  fs::create_symlink("scratch", root());
  expect_failure([&] { choose("auto"); }, root().string() + " is a link to scratch, which does not exist");
  fs::remove(root());
  EXPECT_TRUE(list_checkpoints(root() / "below").empty());
}

TEST_F(Checkpoint, FoldersAreMadeOnce) {
  const fs::path deep = directory_.path() / "one" / "two" / "three";
  EXPECT_TRUE(make_directories(deep));
  EXPECT_FALSE(make_directories(deep));
  EXPECT_TRUE(fs::is_directory(deep));
  write_file(deep / "file", "");
  expect_failure([&] { make_directories(deep / "file" / "below"); }, "cannot create the directory");
}

TEST_F(Checkpoint, OneThatDoesNotGetItsNameBackIsTold) {
  save(1);
  fs::rename(at(1), root() / "step-00000001.replaced");
  fs::create_symlink("nowhere", at(1));
  expect_failure([&] { repair_checkpoints(root()); }, "step-00000001.replaced: cannot rename to step-00000001: ");
  fs::remove(at(1));
  repair_checkpoints(root());
  EXPECT_EQ(choose("auto"), at(1));
}

/// Returns the names in a directory that are renamed or removed while `work` runs, in order, as inotify reports them.
std::vector<std::string> names_that_go(const fs::path& directory, const std::function<void()>& work) {
  const int watch = inotify_init1(IN_NONBLOCK);
  inotify_add_watch(watch, directory.c_str(), IN_MOVED_FROM | IN_DELETE);
  work();
  std::array<char, 4096> buffer{};
  const ssize_t bytes = read(watch, buffer.data(), buffer.size());
  close(watch);
  std::vector<std::string> names;
  for (ssize_t at = 0; at < bytes;) {
    const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
    names.emplace_back(event->name);
    at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
  }
  return names;
}

TEST_F(Checkpoint, ACheckpointLosesItsNameBeforeItsFiles) {
  for (const int step : {1, 2}) save(step);
  EXPECT_THAT(names_that_go(root(), [&] { prune_checkpoints(root(), 1); }),
              ElementsAre("step-00000001", "step-00000001.removing"));
}

TEST_F(Checkpoint, LargeStepsSortByNumber) {
  for (const std::int64_t step : {std::int64_t{99999999}, std::int64_t{100000000}}) save(step);
  EXPECT_THAT(list_checkpoints(root()), ElementsAre("step-100000000", "step-99999999"));
}

TEST_F(Checkpoint, AFullDiskLeavesAllAsItWas) {
  save(1);
  const auto before = contents();
  for (const rlim_t limit : {0, 3, 100, 5000, 100000, 1000000, 2896000}) {
    const auto full = [&] {
      const FileSizeLimit none_left(limit);
      save(2);
    };
    EXPECT_THAT(error_of(full, ExitCode::failed),
                AllOf(HasSubstr("step-00000002"), HasSubstr("rank 0"), HasSubstr(".h5"), HasSubstr("File too large")))
        << limit;
    EXPECT_EQ(contents(), before) << limit;
  }
  save(2);
  EXPECT_EQ(CheckpointReader(at(2)).problem(), "");
}

TEST_F(Checkpoint, AFailureInAnyPhaseLeavesAllAsItWas) {
  save(1);
  const auto before = contents();
  for (const std::string phase : {"plan", "prepare", "shard", "read", "digest", "manifest", "publish"}) {
    bool seen = false;
    const auto probe = [&](std::string_view now) {
      if (now != phase) return;
      seen = true;
      throw std::runtime_error("lightning");
    };
    EXPECT_THAT(error_of([&] { save(2, probe); }, ExitCode::failed),
                AllOf(HasSubstr("rank 0"), HasSubstr("lightning")));
    EXPECT_TRUE(seen) << phase;
    EXPECT_EQ(contents(), before) << phase;
  }
}

TEST_F(Checkpoint, ACrashInAnyPhaseLeavesTheOldOne) {
  save(1);
  for (const std::string phase : {"prepare", "shard", "digest", "manifest", "publish", "latest"}) {
    const pid_t child = fork();
    if (child == 0) {
      save(2, [&](std::string_view now) {
        if (now == phase) _exit(9);
      });
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 9) << phase;
    EXPECT_EQ(latest(), "step-00000001\n");
    EXPECT_EQ(choose("auto"), phase == "latest" ? at(2) : at(1));
    EXPECT_TRUE(warnings_.empty());
  }
  save(2);  // replaces the leftovers of the killed process
  EXPECT_EQ(choose("auto"), at(2));
  EXPECT_FALSE(fs::exists(root() / "step-00000002.partial"));
}

TEST_F(Checkpoint, ACrashOfTheThreadThatWritesLeavesTheOldOne) {
  save(1);
  for (const std::string phase : {"shard", "digest"}) {
    const pid_t child = fork();
    if (child == 0) {
      const TestSlices slices = model_slices();
      CheckpointHeader head = header;
      head.step = 2;
      BackgroundCheckpoint checkpoint(group_, root(), head, slices.get(), [&](std::string_view now) {
        if (now == phase) raise(SIGKILL);
      });
      checkpoint.publish();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << phase;
    EXPECT_TRUE(fs::exists(root() / "step-00000002.partial"));
    EXPECT_EQ(latest(), "step-00000001\n");
    EXPECT_EQ(choose("auto"), at(1));
    EXPECT_TRUE(warnings_.empty());
  }
  save(2);  // replaces the leftovers of the killed process
  EXPECT_EQ(choose("auto"), at(2));
  EXPECT_FALSE(fs::exists(root() / "step-00000002.partial"));
}

TEST_F(Checkpoint, AStepSavedAgainReplacesTheOldOne) {
  save(5);
  std::ofstream(at(5) / "rank-00009.h5") << "of a larger mesh";
  CheckpointHeader again = header;
  again.step = 5;
  again.run_uuid = "new";
  write_checkpoint(group_, root(), again, model_slices().get());
  EXPECT_EQ(CheckpointReader(at(5)).header().run_uuid, "new");
  EXPECT_EQ(CheckpointReader(at(5)).problem(), "");
  EXPECT_FALSE(fs::exists(at(5) / "rank-00009.h5"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root()), {}), 2);  // the checkpoint and LATEST
}

TEST_F(Checkpoint, ManifestIsJsonThatNamesEveryBox) {
  const TestTensor tensor{"a/b", {4, 2}}, large{"a/c", {9, 4096}};
  TestSlices slices;
  slices.add(tensor, {{0, 0}, {1, 2}});
  slices.add(large, {{0, 0}, {8, 4096}});
  slices.add(tensor, {{1, 0}, {3, 2}});
  slices.add(large, {{8, 0}, {1, 4096}});
  write_checkpoint(group_, root(), header, slices.get());
  const auto json = nlohmann::json::parse(read_whole_file(at(100) / "manifest.json"));
  EXPECT_EQ(json["format"], "lyceum-checkpoint");
  EXPECT_EQ(json["step"], 100);
  EXPECT_EQ(json["files"][0]["name"], "rank-00000.h5");
  EXPECT_EQ(json["files"][0]["bytes"], fs::file_size(at(100) / "rank-00000.h5"));
  EXPECT_EQ(json["tensors"][0]["name"], "a/b");
  EXPECT_EQ(json["tensors"][0]["boxes"],
            nlohmann::json::parse(R"([[0, "packed[f32]", [0, 0], [1, 2], 0], [0, "packed[f32]", [1, 0], [3, 2], 2]])"));
  EXPECT_EQ(json["tensors"][1]["boxes"], nlohmann::json::parse(R"([[0, "a/c[0:8,0:4096]", [0, 0], [8, 4096]],
                                                                   [0, "packed[f32]", [8, 0], [1, 4096], 8]])"));
}

/// The tensors of the checkpoints in tests/io/checkpoint/old, which earlier versions of Lyceum wrote on two ranks.
TEST_F(Checkpoint, ThoseOfEarlierVersionsAreRead) {
  const std::vector<TestTensor> tensors{{"lm_head/weight", {7, 5}},
                                        {"model/empty", {0, 5}},
                                        {"model/layers/0/cube", {2, 3, 4}},
                                        {"model/norm/weight", {3}},
                                        {"optimizer/exp_avg/lm_head/weight", {7, 5}}};
  for (const int version : {1, 2}) {
    const fs::path path = fs::path(LYCEUM_SOURCE_DIR) / "tests/io/checkpoint/old" / fmt::format("version-{}", version);
    const CheckpointReader reader(path);
    EXPECT_EQ(reader.problem(), "");
    EXPECT_EQ(reader.header().step, version);
    EXPECT_EQ(reader.header().trainer_state, "{\"samples\": 3}");
    ASSERT_EQ(reader.tensors().size(), tensors.size());
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const auto& [name, shape] = tensors[t];
      EXPECT_EQ(reader.tensors()[t].name, name);
      EXPECT_EQ(reader.tensors()[t].shape, shape);
      const bool half = version == 2 && (t == 2 || t == 4);
      EXPECT_EQ(reader.tensors()[t].type, half ? DType::bf16 : DType::f32);
      std::vector<Box> boxes{Box::whole(shape)};
      if (t == 0) boxes.push_back({{2, 1}, {3, 2}});
      if (t == 2) boxes.push_back({{1, 0, 1}, {1, 2, 3}});
      for (const Box& box : boxes) {
        std::vector<float> expected = test_values(tensors[t], box);
        if (half) std::ranges::transform(expected, expected.begin(), HalfSlices::rounded);
        EXPECT_TRUE(same_bits(read_box(reader, name, box), expected)) << version << ' ' << name << box.text();
      }
    }
    EXPECT_EQ(format_version_of(read_manifest(path).tensors), version);
    const CheckpointSummary summary = summarize_checkpoint(path);
    EXPECT_EQ(summary.problem, "");
    EXPECT_EQ(summary.tensors, 5);
    EXPECT_EQ(summary.parameters, 35 + 24 + 3);
    EXPECT_EQ(summary.bytes, reader.bytes());
  }
}

TEST_F(Checkpoint, SummariesNameWhatProblemNames) {
  save(1);
  EXPECT_EQ(summarize_checkpoint(at(1)).problem, "");
  EXPECT_EQ(summarize_checkpoint(at(1)).tensors, std::ssize(model()));
  forge(at(1), "\"shape\":[1]", "\"shape\":[2]");
  EXPECT_THAT(summarize_checkpoint(at(1)).problem, HasSubstr("model/norm/weight"));
  EXPECT_EQ(summarize_checkpoint(at(1)).problem, CheckpointReader(at(1)).problem(CheckpointReader::Check::sizes));
  save(1);
  fs::resize_file(at(1) / "rank-00000.h5", 100);
  EXPECT_THAT(summarize_checkpoint(at(1)).problem, HasSubstr("100 bytes instead of"));
  EXPECT_EQ(summarize_checkpoint(at(1)).problem, CheckpointReader(at(1)).problem(CheckpointReader::Check::sizes));
  std::ofstream(at(1) / "manifest.json", std::ios::app) << " ";
  EXPECT_THAT(error_of([&] { summarize_checkpoint(at(1)); }, ExitCode::bad_input), HasSubstr("was changed"));
  EXPECT_THAT(error_of([&] { read_manifest_head(at(1)); }, ExitCode::bad_input), HasSubstr("was changed"));
}

/// The head of a manifest is read without its tensors, but a change in them is found.
TEST_F(Checkpoint, TheHeadOfAManifestHasNoTensors) {
  save(1);
  const Manifest head = read_manifest_head(at(1)), whole = read_manifest(at(1));
  EXPECT_EQ(head.header.config, whole.header.config);
  EXPECT_EQ(head.files.size(), whole.files.size());
  EXPECT_TRUE(head.tensors.empty());
  EXPECT_EQ(std::ssize(whole.tensors), std::ssize(model()));
  flip_bit(at(1) / manifest_name, 8 * read_whole_file(at(1) / manifest_name).find("model/norm"));
  EXPECT_THAT(error_of([&] { read_manifest_head(at(1)); }, ExitCode::bad_input), HasSubstr("was changed"));
}

TEST_F(Checkpoint, IndexShowsTensorsWholeAndMissingShardsAsNan) {
  save(1);
  const auto large = Box::whole(model()[5].shape);
  EXPECT_TRUE(same_bits(hdf5::File::open(at(1) / "index.h5").dataset("model/large").read<float>(),
                        test_values(model()[5], large)));
  fs::remove(at(1) / "rank-00000.h5");
  const std::vector<float> norm = hdf5::File::open(at(1) / "index.h5").dataset("model/norm/weight").read<float>();
  EXPECT_TRUE(norm.size() == 1 && std::isnan(norm[0]));
}

TEST(Sha256, KnownDigests) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Boxes, ARangeIsPartsOfRowsAndWholeRows) {
  // Compares every range of tensors with 0 to 4 dimensions with elements counted one by one.
  for (const Shape& shape :
       {Shape{}, Shape{5}, Shape{3, 4}, Shape{1, 1}, Shape{0, 3}, Shape{2, 3, 4}, Shape{2, 2, 3, 2}}) {
    for (std::int64_t first = 0; first <= shape.size(); ++first) {
      for (std::int64_t count = 0; first + count <= shape.size(); ++count) {
        const std::vector<Box> boxes = boxes_of_range(shape, first, count);
        EXPECT_LE(std::ssize(boxes), std::max(1, 2 * shape.rank() - 1));
        std::int64_t at = first;
        for (const Box& box : boxes) {
          ASSERT_TRUE(inside(box, shape));
          ASSERT_GT(box.extent.size(), 0);
          for (std::int64_t flat = 0; flat < shape.size(); ++flat) {
            std::int64_t rest = flat;
            bool within = true;
            for (int axis = shape.rank() - 1; axis >= 0; --axis) {
              const std::int64_t index = rest % shape[axis];
              rest /= shape[axis];
              within = within && index >= box.offset[axis] && index < box.offset[axis] + box.extent[axis];
            }
            if (!within) continue;
            ASSERT_EQ(flat, at++) << box.text() << " of " << shape.text();
          }
        }
        EXPECT_EQ(at, first + count) << shape.text();
      }
    }
  }
  EXPECT_THROW(boxes_of_range({3, 4}, 5, 8), Error);
  EXPECT_THROW(boxes_of_range({3, 4}, -1, 2), Error);
}

TEST(Boxes, IntersectionsAndOverlaps) {
  EXPECT_EQ(intersection({{0, 2}, {3, 4}}, {{2, 0}, {5, 3}}), (Box{{2, 2}, {1, 1}}));
  EXPECT_EQ(intersection({{0}, {3}}, {{3}, {1}}), std::nullopt);
  EXPECT_EQ(find_overlap({}), std::nullopt);
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  int overlapping = 0;
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<Box> boxes;
    for (int i = 0; i < 4; ++i) boxes.push_back({{below(9), below(9)}, {1 + below(3), 1 + below(3)}});
    bool expected = false;
    for (std::size_t a = 0; a < boxes.size(); ++a) {
      for (std::size_t b = a + 1; b < boxes.size(); ++b) expected = expected || intersection(boxes[a], boxes[b]);
    }
    overlapping += expected;
    EXPECT_EQ(find_overlap(boxes).has_value(), expected);
  }
  EXPECT_GT(overlapping, 50);
  EXPECT_LT(overlapping, 450);
}

}  // namespace
}  // namespace lyceum
