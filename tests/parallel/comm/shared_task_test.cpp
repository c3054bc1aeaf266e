// Which of several processes does a task, and which one reports.
#include "parallel/comm/shared_task.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "parallel/comm/last_word.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

class SharedTaskTest : public testing::Test {
 protected:
  SharedTaskTest()
      : memory_(mmap(nullptr, sizeof(SharedTask), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~SharedTaskTest() override { munmap(memory_, sizeof(SharedTask)); }

  SharedTask& task() const { return *static_cast<SharedTask*>(memory_); }
  /// The exit code of another process that runs `action`.
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
  EXPECT_TRUE(task().take(false));
  EXPECT_TRUE(task().take(false));
  EXPECT_EQ(task().process(), getpid());
  EXPECT_EQ(in_child([&] { return task().take(false); }), 0);
  EXPECT_TRUE(task().finish());
  EXPECT_TRUE(task().done());
  EXPECT_FALSE(task().finish());
  EXPECT_EQ(in_child([&] { return task().take(true); }), 0);
}

TEST_F(SharedTaskTest, AProcessThatIsGoneIsReplaced) {
  EXPECT_EQ(in_child([&] { return task().take(false); }), 1);
  EXPECT_FALSE(task().done());
  EXPECT_TRUE(task().take(false));
  EXPECT_TRUE(task().finish());
}

TEST_F(SharedTaskTest, AProcessThatIsStuckIsReplacedByForceAndFinishesNothing) {
  EXPECT_TRUE(task().take(false));
  EXPECT_EQ(in_child([&] { return task().take(true) && task().finish(); }), 1);
  EXPECT_FALSE(task().finish());
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
