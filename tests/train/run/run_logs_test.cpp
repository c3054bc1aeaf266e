#include "train/run/run_logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <sstream>

#include "io/routing/history.h"
#include "model/routing/routing_sums.h"
#include "support/temporary_directory.h"
#include "support/tiny_run.h"

namespace lyceum {
namespace {

using testing::HasSubstr;
using testing::Not;

/// The logs of a run with one layer of four experts on two ranks.
class RoutingOfARun : public testing::Test {
 protected:
  RoutingOfARun() {
    config_.model.layers = 1;
    config_.moe.experts = 4;
    config_.moe.top_k = 1;
    config_.moe.expert_hidden = 8;
    config_.routing.every = 10;
    config_.run.steps = 0;  // so that no start is logged
    config_.run.dir = directory_.path().string();
    place(0, {0, 0, 1, 1});
    logs_.open(state_, "");
  }

  void place(std::int64_t step, std::vector<int> owner) {
    state_.step = step;
    state_.placement = {{{0}, Placement::of_owners(std::move(owner), 2)}};
  }
  void move(std::int64_t step, std::vector<int> owner) {
    place(step, std::move(owner));
    logs_.placement_changed(state_);
  }
  /// Adds a record that the next call writes.
  void add_record(std::int64_t step) {
    LayerRouting routing{.id = {0}, .top_k = 1, .experts = 4, .counts = {step, 1, 2, 3}, .mean_probability = {}};
    routing.mean_probability.resize(4, 0.25F);
    state_.unwritten_routing.push_back({step, {routing}});
  }
  std::filesystem::path file() const { return directory_.path() / "routing.h5"; }

  const TemporaryDirectory directory_;
  Config config_;
  std::unique_ptr<RunSetup> setup_ = make_setup(ProcessGroup::self(), {});
  std::ostringstream out_;
  RunReport report_{config_, *setup_, out_};
  RunLogs logs_{config_, *setup_, report_};
  RunState state_;
};

/// Makes files of this process end at `bytes`, as on a full disk.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

/// Moves that fail, in a file that exists, are written with their steps, between the records of that time.
TEST_F(RoutingOfARun, KeepsTheStepsOfMovesThatCouldNotBeWritten) {
  add_record(10);
  move(10, {0, 1, 0, 1});
  EXPECT_EQ(read_routing(file()).moves.size(), 2u);
  {
    const FileLimit full(4096);
    add_record(20);
    move(20, {0, 1, 1, 0});
    add_record(30);
    move(35, {0, 0, 1, 1});
    logs_.finish(state_);
  }
  EXPECT_THAT(out_.str(), HasSubstr("routing.h5: lacks 2 records and 2 changes of the placement of experts"));
  EXPECT_EQ(read_routing(file()).steps, std::vector<std::int64_t>{10});
  add_record(40);
  move(45, {1, 0, 1, 0});
  const RoutingHistory history = read_routing(file());
  EXPECT_EQ(history.steps, (std::vector<std::int64_t>{10, 20, 30, 40}));
  EXPECT_EQ(history.moves, (std::vector<ExpertMove>{{10, 0, 1, 0, 1},
                                                    {10, 0, 2, 1, 0},
                                                    {20, 0, 2, 0, 1},
                                                    {20, 0, 3, 1, 0},
                                                    {35, 0, 1, 1, 0},
                                                    {35, 0, 3, 0, 1},
                                                    {45, 0, 0, 0, 1},
                                                    {45, 0, 3, 1, 0}}));
  EXPECT_EQ(history.layers[0].expert_rank, (std::vector<std::int64_t>{1, 0, 1, 0}));
}

/// A log that cannot be created begins with the placement at the start of the run.
TEST_F(RoutingOfARun, BeginsWithThePlacementAtTheStart) {
  logs_.open(state_, "");
  std::filesystem::remove(file());
  std::filesystem::create_directories(directory_.path() / ".routing.h5.next" / "in-the-way");
  logs_.open(state_, "");
  EXPECT_FALSE(std::filesystem::exists(file()));
  move(5, {0, 1, 0, 1});
  std::filesystem::remove_all(directory_.path() / ".routing.h5.next");
  add_record(10);
  logs_.finish(state_);
  const RoutingHistory history = read_routing(file());
  EXPECT_EQ(history.steps, std::vector<std::int64_t>{10});
  EXPECT_EQ(history.moves, (std::vector<ExpertMove>{{5, 0, 1, 0, 1}, {5, 0, 2, 1, 0}}));
  EXPECT_THAT(out_.str(), Not(HasSubstr("lacks")));
}

}  // namespace
}  // namespace lyceum
