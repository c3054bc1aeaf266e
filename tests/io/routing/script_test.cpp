#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "io/routing/log.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

/// A routing log written by C++ is read with h5py.
class RoutingScriptTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists(python_)) << python_ << " is missing: run scripts/install-deps.sh";
    RoutingLog log(directory_.path() / "routing.h5",
                   {{.id = {1}, .top_k = 2, .expert_sizes = {8, 16, 24}, .expert_rank = {0, 0, 1}}}, -1);
    for (const std::int64_t step : {10, 20, 30}) {
      const LayerRouting layer{.id = {1},
                               .top_k = 2,
                               .experts = 3,
                               .counts = {step, 2 * step, 0, 4, 5, 6},
                               .mean_probability = {0.25f, 0.5f, 0.25f}};
      log.append(step, std::span(&layer, 1));
    }
  }
  int run(const std::string& arguments) const {
    return std::system(fmt::format("'{}' {}", python_.string(), arguments).c_str());
  }

  std::filesystem::path source_ = LYCEUM_SOURCE_DIR, python_ = source_ / ".venv/bin/python";
  TemporaryDirectory directory_;
};

TEST_F(RoutingScriptTest, H5pySeesScalesUnitsAndAttributes) {
  const std::filesystem::path script = directory_.path() / "check.py";
  std::ofstream(script) << R"py(
import sys, h5py
file = h5py.File(sys.argv[1], "r")
assert file.attrs["format"] == "lyceum.routing" and file.attrs["format_version"] == 1
assert list(file["step"]) == [10, 20, 30] and file["step"].maxshape == (None,)
counts, probability = file["layers/001/counts"], file["layers/001/mean_probability"]
assert counts.shape == (3, 2, 3) and counts.dtype == "int64" and counts.maxshape == (None, 2, 3) and counts.chunks
assert counts[2].tolist() == [[30, 60, 0], [4, 5, 6]]
assert probability.shape == (3, 3) and probability.dtype == "float32" and probability.maxshape == (None, 3)
assert [d.label for d in counts.dims] == ["step", "choice", "expert"]
assert [d.label for d in probability.dims] == ["step", "expert"]
assert list(counts.dims[0]["step"]) == [10, 20, 30] and counts.dims[0]["step"] == file["step"]
assert list(counts.dims[1]["choice"]) == [0, 1] and list(counts.dims[2]["expert"]) == [0, 1, 2]
assert counts.attrs["units"] == "tokens" and probability.attrs["units"] == "1"
for item in (counts, probability, file["layers/001"]):
    assert item.attrs["expert_sizes"].tolist() == [8, 16, 24] and item.attrs["expert_rank"].tolist() == [0, 0, 1]
)py";
  EXPECT_EQ(run(fmt::format("'{}' '{}'", script.string(), (directory_.path() / "routing.h5").string())), 0);
}

// Records of a large model are compressed by filters that HDF5 itself has.
TEST_F(RoutingScriptTest, H5pyReadsCompressedRecords) {
  const std::filesystem::path file = directory_.path() / "large.h5";
  {
    RoutingLog log(file,
                   {{.id = {4},
                     .top_k = 4,
                     .expert_sizes = std::vector<std::int64_t>(300, 8),
                     .expert_rank = std::vector<std::int64_t>(300, 0)}},
                   -1);
    for (const std::int64_t step : {1, 2, 3}) {
      LayerRouting layer{.id = {4}, .top_k = 4, .experts = 300, .counts = {}, .mean_probability = {}};
      for (std::int64_t i = 0; i < 1200; ++i) layer.counts.push_back(step * 100'000'000'000 + i);
      for (std::int64_t e = 0; e < 300; ++e) layer.mean_probability.push_back(static_cast<float>(e) / 300);
      log.append(step, std::span(&layer, 1));
    }
  }
  const std::filesystem::path script = directory_.path() / "check.py";
  std::ofstream(script) << R"py(
import sys, h5py, numpy
file = h5py.File(sys.argv[1], "r")
counts, probability = file["layers/004/counts"], file["layers/004/mean_probability"]
for item in (counts, probability):
    assert item.compression == "gzip" and item.shuffle and item.fletcher32 and item.chunks[0] == 1 and item.maxshape[0] is None
for record, step in enumerate([1, 2, 3]):
    assert (counts[record].ravel() == step * 10**11 + numpy.arange(1200)).all()
    assert (probability[record] == numpy.arange(300, dtype="float32") / numpy.float32(300)).all()
assert counts.dims[0]["step"] == file["step"] and counts.attrs["units"] == "tokens"
)py";
  EXPECT_EQ(run(fmt::format("'{}' '{}'", script.string(), file.string())), 0);
}

TEST_F(RoutingScriptTest, LeavesOutExpertsThatAreAlwaysActive) {
  const std::filesystem::path file = directory_.path() / "parts.h5";
  {
    RoutingLog log(file, {{.id = {1}, .top_k = 1, .always_on = 1, .expert_sizes = {8, 8, 8}, .expert_rank = {0, 0, 0}}},
                   -1);
    const LayerRouting layer{
        .id = {1}, .top_k = 1, .experts = 3, .counts = {0, 8, 4}, .mean_probability = {0.4f, 0.4f, 0.2f}};
    log.append(10, std::span(&layer, 1));
  }
  const std::filesystem::path script = directory_.path() / "check.py";
  std::ofstream(script) << R"py(
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from routing import read
layer, = read(pathlib.Path(sys.argv[2]), None, None)[2]
assert layer.always_on == 1 and layer.load.tolist() == [8, 4] and layer.ratios.tolist() == [[2]], layer
)py";
  EXPECT_EQ(run(fmt::format("'{}' '{}' '{}'", script.string(), (source_ / "scripts/analysis").string(), file.string())),
            0);
}

TEST_F(RoutingScriptTest, DrawsAPicture) {
  const std::filesystem::path picture = directory_.path() / "routing.png";
  const std::string script = (source_ / "scripts/analysis/routing.py").string();
  ASSERT_EQ(run(fmt::format("'{}' '{}' --out '{}'", script, directory_.path().string(), picture.string())), 0);
  EXPECT_GT(std::filesystem::file_size(picture), 10000u);
  std::string magic(8, ' ');
  std::ifstream(picture, std::ios::binary).read(magic.data(), 8);
  EXPECT_EQ(magic, "\x89PNG\r\n\x1a\n");
  std::ofstream(directory_.path() / "routing.h5") << "rubbish";
  EXPECT_NE(run(fmt::format("'{}' '{}' --out '{}' 2>/dev/null", script, directory_.path().string(), picture.string())),
            0);
}

}  // namespace
}  // namespace lyceum
