#include "io/files/open_regular.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>

#include "core/error.h"
#include "io/files/appended_file.h"
#include "io/files/atomic_file.h"
#include "io/files/hdf5.h"
#include "io/files/input_file.h"
#include "io/files/partial_file.h"
#include "io/files/sha256.h"
#include "io/files/text_stream.h"
#include "io/files/whole_file.h"
#include "io/routing/log.h"
#include "io/run/lock.h"
#include "io/run/metrics.h"
#include "io/run/prometheus.h"
#include "io/run/starts.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* precious = "what a user would miss\n";

class OpenRegular : public testing::Test {
 protected:
  OpenRegular() {
    std::ofstream(victim_) << precious;
    fs::create_directory(run_);
  }
  /// Opens and closes the file; returns the error, or 0.
  static int error_of(const fs::path& path, int flags, Links links) {
    const int descriptor = open_regular(path, flags, links);
    if (descriptor < 0) return errno;
    ::close(descriptor);
    return 0;
  }
  TemporaryDirectory directory_;
  fs::path victim_ = directory_.path() / "victim", run_ = directory_.path() / "run";
};

TEST_F(OpenRegular, OpensRegularFilesOnly) {
  EXPECT_EQ(error_of(victim_, O_RDONLY, Links::refused), 0);
  EXPECT_EQ(error_of(run_ / "new", O_WRONLY | O_CREAT, Links::refused), 0);
  EXPECT_EQ(error_of(run_ / "absent", O_RDONLY, Links::refused), ENOENT);
  EXPECT_EQ(error_of(run_, O_RDONLY, Links::followed), EISDIR);
  EXPECT_EQ(error_of("/dev/null", O_RDONLY, Links::followed), ENXIO);
  mkfifo((run_ / "fifo").c_str(), 0666);
  for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR}) {
    EXPECT_EQ(error_of(run_ / "fifo", flags | O_CREAT, Links::followed), ENXIO) << flags;
  }
}

TEST_F(OpenRegular, FollowsLinksWhereTold) {
  fs::create_symlink(victim_, run_ / "link");
  EXPECT_EQ(error_of(run_ / "link", O_RDONLY, Links::followed), 0);
  EXPECT_EQ(error_of(run_ / "link", O_RDONLY, Links::refused), ELOOP);
  EXPECT_EQ(error_of(run_ / "link", O_WRONLY | O_CREAT | O_TRUNC, Links::refused), ELOOP);
  fs::create_directory_symlink(run_, directory_.path() / "folder");
  EXPECT_EQ(error_of(directory_.path() / "folder" / "new", O_WRONLY | O_CREAT, Links::refused), 0);
  EXPECT_EQ(read_whole_file(victim_), precious);
}

TEST_F(OpenRegular, KeepsAStreamOpen) {
  std::string word;
  EXPECT_TRUE(open_to_read(victim_) >> word);
  EXPECT_EQ(word, "what");
  EXPECT_FALSE(open_to_read(run_ / "absent").good());
  EXPECT_EQ(errno, ENOENT);
  mkfifo((run_ / "fifo").c_str(), 0666);
  EXPECT_FALSE(open_to_read(run_ / "fifo").good());
  EXPECT_EQ(errno, ENXIO);
}

using Write = std::function<void(const fs::path&)>;

/// Every function that writes a file of a run, with the name of the file that it opens.
const std::vector<std::pair<std::string, Write>>& writers() {
  static const std::vector<std::pair<std::string, Write>> all{
      {"text", [](const fs::path& file) { write_file(file, "x"); }},
      {"replaced.partial", [](const fs::path& file) { replace_file(fs::path(file).replace_extension(), "x"); }},
      {"whole.partial", [](const fs::path& file) { write_whole_file(fs::path(file).replace_extension(), "x"); }},
      {"tokens.partial", [](const fs::path& file) { PartialFile(fs::path(file).replace_extension().string()); }},
      {"appended", [](const fs::path& file) { AppendedFile(file, 0); }},
      {"metrics.jsonl", [](const fs::path& file) { MetricsLog(file, -1); }},
      {"starts.jsonl", [](const fs::path& file) { record_start(file, {}); }},
      {"LOCK", [](const fs::path& file) { RunLock(file.parent_path()); }},
      {"shard.h5", [](const fs::path& file) { hdf5::File::create(file); }},
      {"edited.h5", [](const fs::path& file) { hdf5::File::edit(file); }},
      {"x.prom.new", [](const fs::path& file) { write_prometheus(fs::path(file).replace_extension(), {}, "run"); }}};
  return all;
}

TEST_F(OpenRegular, NothingWritesThroughALink) {
  for (const auto& [name, write] : writers()) {
    fs::create_symlink(victim_, run_ / name);
    try {
      write(run_ / name);
      ADD_FAILURE() << name << " was written";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("symbolic link")) << name;
    }
    EXPECT_EQ(read_whole_file(victim_), precious) << name;
    fs::remove(run_ / name);
  }
}

TEST_F(OpenRegular, NothingWaitsForAFifo) {
  for (const auto& [name, write] : writers()) {
    mkfifo((run_ / name).c_str(), 0666);
    EXPECT_THROW(write(run_ / name), Error) << name;
    fs::remove(run_ / name);
  }
  const fs::path fifo = run_ / "fifo";
  mkfifo(fifo.c_str(), 0666);
  EXPECT_THROW(read_whole_file(fifo), Error);
  EXPECT_THROW(InputFile(fifo.string(), "mend"), Error);
  EXPECT_THROW(digest_of_file(fifo), Error);
  EXPECT_THROW(TextStream{fifo}, Error);
  EXPECT_THROW(hdf5::File::open(fifo), Error);
  EXPECT_THROW(read_metrics(fifo), Error);
  EXPECT_THROW(read_starts(fifo), Error);
}

TEST_F(OpenRegular, ARoutingLogDoesNotWriteThroughALink) {
  const std::vector<RoutingLog::Layer> layers{{.id = {}, .top_k = 1, .expert_sizes = {4, 4}, .expert_rank = {0, 0}}};
  const LayerRouting routing{.id = {}, .top_k = 1, .experts = 2, .counts = {1, 2}, .mean_probability = {0.5, 0.5}};
  fs::create_symlink(victim_, run_ / "routing.h5");
  RoutingLog log(run_ / "routing.h5", layers, -1);
  for (const std::int64_t step : {1, 2, 3}) log.append(step, std::vector{routing});
  EXPECT_EQ(read_whole_file(victim_), precious);
  EXPECT_FALSE(fs::is_symlink(run_ / "routing.h5"));
}

TEST_F(OpenRegular, AFolderMayBeALink) {
  fs::create_directory_symlink(run_, directory_.path() / "named");
  const fs::path named = directory_.path() / "named";
  { RunLock lock(named); }
  MetricsLog(named / "metrics.jsonl", -1).append({{"step", 1}});
  EXPECT_EQ(read_metrics(run_ / "metrics.jsonl").size(), 0u);
}

}  // namespace
}  // namespace lyceum
