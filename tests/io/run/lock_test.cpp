#include "io/run/lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr RunLock::Timing quick{.beat = 20ms, .silence = 300ms, .patience = 0ms};

std::string text_of_file(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Returns the message with which an attempt to lock the directory fails, or an empty string.
std::string refusal(const fs::path& directory) {
  try {
    const RunLock lock(directory, quick);
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
}

class RunLockTest : public testing::Test {
 protected:
  /// Returns the lock file's record of this process, as a basis for records of other holders.
  nlohmann::json own_record() {
    const RunLock lock(run, quick);
    return nlohmann::json::parse(text_of_file(file));
  }
  void write_record(const std::string& text) {
    fs::create_directories(run);
    std::ofstream(file) << text;
  }

  TemporaryDirectory folder;
  fs::path run = folder.path() / "deep" / "run", file = run / "LOCK";
};

TEST_F(RunLockTest, HoldsAndGivesBack) {
  {
    const RunLock lock(run, quick);
    EXPECT_EQ(lock.recovered(), "");
    EXPECT_TRUE(fs::exists(file));
    EXPECT_NO_THROW(lock.require_held());
  }
  EXPECT_FALSE(fs::exists(file));
  EXPECT_EQ(refusal(run), "");
}

TEST_F(RunLockTest, RefusesASecondOneAndNamesTheFirst) {
  const RunLock lock(run, quick);
  const std::string told = refusal(run);
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  EXPECT_THAT(told, testing::HasSubstr(run.string() + " is in use by a run on " + host));
  EXPECT_THAT(told, testing::HasSubstr("process " + std::to_string(getpid())));
  EXPECT_THAT(told, testing::HasSubstr("set another run.dir"));
  EXPECT_NO_THROW(lock.require_held());
}

TEST_F(RunLockTest, WaitsForAHolderThatIsJustEnding) {
  auto held = std::make_unique<RunLock>(run, quick);
  std::jthread ending([&] {
    std::this_thread::sleep_for(100ms);
    held.reset();
  });
  EXPECT_NO_THROW(RunLock(run, {.beat = 20ms, .silence = 300ms, .patience = 1min}));
}

// The disk has room for 100 bytes. The first write writes only these; the second one fails with the reason.
TEST_F(RunLockTest, AFullDiskIsToldAsSuch) {
  fs::create_directories(run);
  const FileSizeLimit full(100);
  try {
    const RunLock lock(run, quick);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::failed);
    EXPECT_THAT(error.what(), testing::HasSubstr("LOCK: cannot write: File too large"));
  }
}

TEST_F(RunLockTest, NamesTheHoldersJob) {
  setenv("SLURM_JOB_ID", "4711", 1);
  const RunLock lock(run, quick);
  unsetenv("SLURM_JOB_ID");
  EXPECT_THAT(refusal(run), testing::HasSubstr("in use by job 4711 on "));
}

TEST_F(RunLockTest, RecoversWhatAKilledProcessOfThisMachineLeft) {
  const pid_t child = fork();
  if (child == 0) {
    auto* lock = new RunLock(run, RunLock::Timing{});  // not released: the process is killed
    _exit(lock->recovered().empty() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(fs::exists(file));
  const RunLock lock(run, RunLock::Timing{});  // must be at once: waiting for the time stamp would take 20 s
  EXPECT_THAT(lock.recovered(), testing::HasSubstr("process " + std::to_string(child)));
}

TEST_F(RunLockTest, AProcessNumberThatWasUsedAgainIsNotTheHolder) {
  nlohmann::json record = own_record();
  record["pid_start"] = record["pid_start"].get<std::uint64_t>() + 1;
  write_record(record.dump());
  const RunLock lock(run, RunLock::Timing{});
  EXPECT_NE(lock.recovered(), "");
}

TEST_F(RunLockTest, ALaterStartOfTheSameJobGoesOnAtOnce) {
  nlohmann::json record = own_record();
  record["kernel"] = "another machine";
  record["job"] = "17";
  record["restarts"] = 1;
  write_record(record.dump());
  setenv("SLURM_JOB_ID", "17", 1);
  setenv("SLURM_RESTART_COUNT", "2", 1);
  const auto start = std::chrono::steady_clock::now();
  const RunLock lock(run, RunLock::Timing{});
  unsetenv("SLURM_JOB_ID");
  unsetenv("SLURM_RESTART_COUNT");
  EXPECT_THAT(lock.recovered(), testing::HasSubstr("job 17"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 15s);
}

TEST_F(RunLockTest, WaitsForASignOfLifeFromAnotherMachine) {
  nlohmann::json record = own_record();
  record["kernel"] = "another machine";
  record["host"] = "far-away";
  write_record(record.dump());
  {  // without a sign of life
    const auto start = std::chrono::steady_clock::now();
    const RunLock lock(run, quick);
    EXPECT_GE(std::chrono::steady_clock::now() - start, quick.silence);
    EXPECT_THAT(lock.recovered(), testing::HasSubstr("far-away"));
  }
  write_record(record.dump());
  std::jthread alive([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      fs::last_write_time(file, fs::file_time_type::clock::now());
      std::this_thread::sleep_for(10ms);
    }
  });
  EXPECT_THAT(refusal(run), testing::HasSubstr("on far-away"));
}

TEST_F(RunLockTest, AnUnreadableRecordIsGivenTimeAndThenReplaced) {
  for (const char* text : {"{\"token\": \"cut o", "[]", "{}", "\xff\xfe"}) {
    fs::create_directories(run);
    write_record(text);
    const RunLock lock(run, quick);
    EXPECT_THAT(lock.recovered(), testing::HasSubstr("unreadable")) << text;
  }
}

TEST_F(RunLockTest, NoticesThatItLostTheDirectory) {
  const RunLock lock(run, quick);
  nlohmann::json record = nlohmann::json::parse(text_of_file(file));
  record["token"] = "another's";
  write_record(record.dump());
  const auto lost = [&] {
    try {
      lock.require_held();
      return false;
    } catch (const Error& error) {
      return std::string(error.what()).find("another job took") != std::string::npos;
    }
  };
  for (int i = 0; i < 500 && !lost(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(lost());
}

TEST_F(RunLockTest, TheOneThatLostDoesNotGiveBackWhatIsNotItsOwn) {
  std::string others;
  {
    const RunLock lock(run, quick);
    nlohmann::json record = nlohmann::json::parse(text_of_file(file));
    record["token"] = "another's";
    others = record.dump();
    write_record(others);
  }
  EXPECT_EQ(text_of_file(file), others);
}

TEST_F(RunLockTest, OfManyThatTryAtOnceOneSucceeds) {
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> taken = 0, refused = 0;
    {
      std::vector<std::unique_ptr<RunLock>> locks(8);
      std::vector<std::jthread> threads;
      for (auto& lock : locks) {
        threads.emplace_back([&] {
          try {
            lock = std::make_unique<RunLock>(run, quick);
            ++taken;
          } catch (const Error&) {
            ++refused;
          }
        });
      }
      threads.clear();
    }
    EXPECT_EQ(taken, 1);
    EXPECT_EQ(refused, 7);
  }
}

TEST(RunLock, LeavesNoDirectoryThatItMadeAndNobodyWroteTo) {
  const TemporaryDirectory folder;
  const auto made = folder.path() / "made", written = folder.path() / "written", there = folder.path() / "there";
  std::filesystem::create_directory(there);
  for (const auto& run : {made / "deep" / "run", written, there, there / "deep" / "run"}) {
    const RunLock lock(run);
    if (run == written) std::ofstream(run / "metrics.jsonl") << "{}\n";
  }
  EXPECT_FALSE(exists(made));
  EXPECT_TRUE(exists(written / "metrics.jsonl"));
  EXPECT_FALSE(exists(written / "LOCK"));
  EXPECT_TRUE(exists(there));
  EXPECT_FALSE(exists(there / "deep"));
}

TEST(RunLock, NamesADirectoryThatCannotBeMade) {
  const TemporaryDirectory folder;
  std::ofstream(folder.path() / "file") << "in the way";
  try {
    const RunLock lock(folder.path() / "file" / "run");
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::failed);
    EXPECT_THAT(error.what(), testing::HasSubstr("file/run: cannot create the directory"));
  }
}

}  // namespace
}  // namespace lyceum
