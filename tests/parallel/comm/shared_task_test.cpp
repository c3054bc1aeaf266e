// Selection of one of several processes, for a task or for the report of a failure.
#include "parallel/comm/shared_task.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "parallel/comm/last_word.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

constexpr double patience = 60;  // seconds

class SharedTaskTest : public testing::Test {
 protected:
  SharedTaskTest()
      : memory_(mmap(nullptr, sizeof(SharedTask), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~SharedTaskTest() override { munmap(memory_, sizeof(SharedTask)); }

  SharedTask& task() const { return *static_cast<SharedTask*>(memory_); }
  /// Returns 1 if `action` returns true in a child process, else 0.
  static int in_child(const std::function<bool()>& action) {
    const pid_t child = fork();
    if (child == 0) _exit(action() ? 1 : 0);
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  }

 private:
  void* memory_;
};

TEST_F(SharedTaskTest, OneProcessDoesIt) {
  EXPECT_EQ(task().process(), 0);
  EXPECT_TRUE(task().take(patience));
  EXPECT_TRUE(task().take(patience));
  EXPECT_EQ(task().process(), getpid());
  EXPECT_EQ(in_child([&] { return task().take(patience); }), 0);
  EXPECT_TRUE(task().finish());
  EXPECT_TRUE(task().done());
  EXPECT_FALSE(task().finish());
  EXPECT_EQ(in_child([&] { return task().take(0); }), 0);
}

TEST_F(SharedTaskTest, AProcessThatIsGoneIsReplaced) {
  EXPECT_EQ(in_child([&] { return task().take(patience); }), 1);
  EXPECT_FALSE(task().done());
  EXPECT_TRUE(task().take(patience));
  EXPECT_TRUE(task().finish());
}

TEST_F(SharedTaskTest, AProcessThatIsStuckIsReplacedByForceAndFinishesNothing) {
  EXPECT_TRUE(task().take(patience));
  EXPECT_EQ(in_child([&] { return task().take(0) && task().finish(); }), 1);
  EXPECT_FALSE(task().finish());
}

TEST_F(SharedTaskTest, PatienceBeginsWithEachOwner) {
  EXPECT_TRUE(task().take(patience));
  const auto waits_and_takes = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    return task().take(0.3);
  };
  const pid_t other = fork();  // takes the task from the other process, and keeps it
  if (other == 0) {
    if (waits_and_takes()) pause();
    _exit(1);
  }
  while (task().process() == getpid()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(task().take(patience));  // though the task was first taken long ago
  EXPECT_TRUE(waits_and_takes());
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
}

TEST(LastWord, IsTakenOnceAndOutlivesItsProcess) {
  const TemporaryDirectory folder;
  setenv("PMIX_SERVER_TMPDIR", folder.path().c_str(), 1);
  setenv("PMIX_NAMESPACE", "17", 1);
  const LastWord word, other;
  EXPECT_FALSE(word.taken());
  EXPECT_TRUE(word.take());
  EXPECT_TRUE(other.taken());
  EXPECT_FALSE(other.take());
  unsetenv("PMIX_SERVER_TMPDIR");
  EXPECT_TRUE(LastWord().take());  // no launcher
  unsetenv("PMIX_NAMESPACE");
}

}  // namespace
}  // namespace lyceum
