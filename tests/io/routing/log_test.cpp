#include "io/routing/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "io/files/hdf5.h"
#include "io/routing/csv.h"
#include "io/routing/moves.h"
#include "io/routing/stats.h"
#include "io/routing/text.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

std::vector<RoutingLog::Layer> two_layers() {
  return {{.id = {1}, .top_k = 2, .expert_sizes = {8, 16, 24}, .expert_rank = {0, 0, 1}},
          {.id = {12}, .top_k = 1, .expert_sizes = {5}, .expert_rank = {0}}};
}

/// Returns a record whose numbers are a function of (step, layer, choice, expert), so a reader can check each one.
std::int64_t tokens_at(std::int64_t step, std::int64_t layer, std::int64_t choice, std::int64_t expert) {
  return 1000 * step + 100 * layer + 10 * choice + expert;
}
float probability_at(std::int64_t step, std::int64_t expert) { return static_cast<float>(expert + 1) / (step + 7); }

std::vector<LayerRouting> record_of(std::int64_t step, const std::vector<RoutingLog::Layer>& layers) {
  std::vector<LayerRouting> record;
  for (const RoutingLog::Layer& layer : layers) {
    LayerRouting routing{.id = layer.id,
                         .top_k = layer.top_k,
                         .experts = static_cast<std::int64_t>(layer.expert_sizes.size()),
                         .counts = {},
                         .mean_probability = {}};
    for (std::int64_t k = 0; k < routing.top_k; ++k) {
      for (std::int64_t e = 0; e < routing.experts; ++e) {
        routing.counts.push_back(tokens_at(step, layer.id.layer, k, e));
      }
    }
    for (std::int64_t e = 0; e < routing.experts; ++e) routing.mean_probability.push_back(probability_at(step, e));
    routing.mean_entropy = static_cast<float>(step) / static_cast<float>(layer.id.layer + 3);
    const auto at = static_cast<float>(step + layer.id.layer);
    routing.steps = {.max_vio_mean = at, .max_vio_max = at + 1, .idle_mean = at / 2, .idle_max = at / 2 + 3};
    record.push_back(std::move(routing));
  }
  return record;
}

void append(RoutingLog& log, std::int64_t step) { log.append(step, record_of(step, two_layers())); }

/// Expects that the file has exactly these steps, with every number of their records.
void expect_records(const std::filesystem::path& file, const std::vector<std::int64_t>& steps) {
  const RoutingHistory history = read_routing(file);
  ASSERT_EQ(history.steps, steps);
  const std::vector<RoutingLog::Layer> layers = two_layers();
  ASSERT_EQ(history.layers.size(), layers.size());
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const RoutingHistory::Layer& read = history.layers[l];
    EXPECT_EQ(read.id, layers[l].id);
    EXPECT_EQ(read.expert_sizes, layers[l].expert_sizes);
    std::vector<std::int64_t> counts;
    std::vector<float> probability, entropy;
    for (const std::int64_t step : steps) {
      const LayerRouting expected = record_of(step, layers)[l];
      counts.insert(counts.end(), expected.counts.begin(), expected.counts.end());
      probability.insert(probability.end(), expected.mean_probability.begin(), expected.mean_probability.end());
      entropy.push_back(expected.mean_entropy);
      const StepBalance& read_steps = read.steps.at(entropy.size() - 1);
      EXPECT_EQ(read_steps.max_vio_mean, expected.steps.max_vio_mean);
      EXPECT_EQ(read_steps.max_vio_max, expected.steps.max_vio_max);
      EXPECT_EQ(read_steps.idle_mean, expected.steps.idle_mean);
      EXPECT_EQ(read_steps.idle_max, expected.steps.idle_max);
    }
    EXPECT_EQ(read.counts, counts);
    EXPECT_EQ(read.mean_probability, probability);
    EXPECT_EQ(read.mean_entropy, entropy);
  }
}

class RoutingLogTest : public testing::Test {
 protected:
  std::size_t files_there() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(directory_.path()), {}));
  }
  TemporaryDirectory directory_;
  std::filesystem::path file_ = directory_.path() / "routing.h5";
};

TEST_F(RoutingLogTest, TwoRoutersOfALayerAndOneOfItsAttentionAlone) {
  const std::vector<RoutingLog::Layer> routers{
      {.id = {1, Site::attention}, .top_k = 1, .expert_sizes = {4, 4}, .expert_rank = {0, 0}},
      {.id = {1, Site::ffn}, .top_k = 2, .drops = true, .expert_sizes = {8, 16, 24}, .expert_rank = {0, 0, 1}},
      {.id = {2, Site::attention}, .top_k = 1, .expert_sizes = {4, 4}, .expert_rank = {0, 0}}};
  std::vector<LayerRouting> record = record_of(5, routers);
  record[1].dropped = {1, 2, 3, 4, 5, 6};
  {
    RoutingLog log(file_, routers, -1);
    log.append(5, record);
  }
  {
    RoutingLog log(file_, routers, 5);
    EXPECT_EQ(log.last_step(), 5);
  }
  const RoutingHistory history = read_routing(file_);
  ASSERT_EQ(history.layers.size(), routers.size());
  for (std::size_t r = 0; r < routers.size(); ++r) {
    EXPECT_EQ(history.layers[r].id, routers[r].id);
    EXPECT_EQ(history.layers[r].expert_sizes, routers[r].expert_sizes);
    EXPECT_EQ(history.layers[r].counts, record[r].counts);
    EXPECT_EQ(history.layers[r].drops, routers[r].drops);
    EXPECT_EQ(history.layers[r].dropped, record[r].dropped);
  }
  std::vector<RoutingLog::Layer> all_kept = routers;
  all_kept[1].drops = false;
  expect_bad_input([&] { RoutingLog(file_, all_kept, 5); }, "whether moe.capacity_factor is set");
  const std::string table = routing_table(history, {0, 1}, false);
  EXPECT_NE(table.find("layer1 attention top0"), std::string::npos) << table;
  EXPECT_NE(table.find("layer1 top1"), std::string::npos) << table;
  std::ostringstream csv;
  write_routing_csv(history, csv);
  EXPECT_NE(csv.str().find(",attention,0\n"), std::string::npos);
}

TEST_F(RoutingLogTest, EveryRecordIsReadableAsSoonAsAppendReturns) {
  {
    RoutingLog log(file_, two_layers(), -1);
    expect_records(file_, {});
    std::vector<std::int64_t> steps;
    for (const std::int64_t step : {1, 2, 10, 11, 40}) {
      append(log, step);
      steps.push_back(step);
      expect_records(file_, steps);
    }
    EXPECT_THROW(append(log, 40), Error) << "steps must grow";
    std::vector<LayerRouting> wrong = record_of(50, two_layers());
    wrong[0].counts.pop_back();
    EXPECT_THROW(log.append(50, wrong), Error);
    EXPECT_THROW(log.append(50, std::span(wrong).first(1)), Error);
    expect_records(file_, steps);
  }
  EXPECT_EQ(files_there(), 1u) << "a closed log leaves only its file";
}

TEST_F(RoutingLogTest, ResumeCutsLaterRecordsAndTakesTheNewPlacement) {
  {
    RoutingLog log(file_, two_layers(), -1);
    for (const std::int64_t step : {10, 20, 30, 40}) append(log, step);
  }
  {
    std::vector<RoutingLog::Layer> moved = two_layers();
    moved[0].expert_rank = {1, 1, 0};
    RoutingLog log(file_, moved, 25);
    EXPECT_EQ(read_routing(file_).layers[0].expert_rank, (std::vector<std::int64_t>{1, 1, 0}));
    expect_records(file_, {10, 20});
    append(log, 30);
    append(log, 35);
  }
  expect_records(file_, {10, 20, 30, 35});
  { RoutingLog log(file_, two_layers(), 35); }
  expect_records(file_, {10, 20, 30, 35});
  { RoutingLog log(file_, two_layers(), 5); }
  expect_records(file_, {});
}

std::vector<RoutingLog::Layer> placed_layers(std::vector<std::int64_t> ranks) {
  std::vector<RoutingLog::Layer> layers = two_layers();
  layers[0].expert_rank = std::move(ranks);
  return layers;
}

/// Returns the ranks of the three experts of layer 1 in each record: the column expert_rank of the CSV.
std::vector<std::string> ranks_in_csv(const std::filesystem::path& file) {
  std::ostringstream csv;
  write_routing_csv(RoutingReader(file), csv);
  std::istringstream lines(csv.str());
  std::vector<std::string> ranks;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::vector<std::string> values;
    for (std::string field; std::getline(fields, field, ',');) values.push_back(field);
    if (values[1] != "1" || values[2] != "0") continue;  // the first choice in layer 1
    if (values[3] == "0") ranks.emplace_back();
    ranks.back() += values[5];
  }
  return ranks;
}

/// Two experts change ranks after step 20, when its record is written already, and back after step 25.
TEST_F(RoutingLogTest, MovesAreKeptWithTheirSteps) {
  const std::vector<ExpertMove> there{{20, 1, 1, 0, 1}, {20, 1, 2, 1, 0}}, back{{25, 1, 1, 1, 0}, {25, 1, 2, 0, 1}};
  std::vector<ExpertMove> both = there;
  both.insert(both.end(), back.begin(), back.end());
  {
    RoutingLog log(file_, placed_layers({0, 0, 1}), -1);
    append(log, 10);
    log.place(10, placed_layers({0, 0, 1}));  // nothing moves
    EXPECT_TRUE(read_routing(file_).moves.empty());
    append(log, 20);
    log.place(20, placed_layers({0, 1, 0}));
    EXPECT_EQ(read_routing(file_).moves, there);
    log.place(25, placed_layers({0, 0, 1}));
    EXPECT_EQ(read_routing(file_).layers[0].expert_rank, (std::vector<std::int64_t>{0, 0, 1}));
    append(log, 30);
    log.place(30, placed_layers({1, 0, 0}));
    append(log, 40);
    EXPECT_THROW(log.place(39, placed_layers({0, 0, 1})), Error);
  }
  EXPECT_EQ(read_routing(file_).moves.size(), 6u);
  EXPECT_EQ(ranks_in_csv(file_), (std::vector<std::string>{"001", "001", "001", "100"}));
  std::string csv;
  EXPECT_EQ(write_moves_csv(RoutingReader(file_), {}, [&](std::string_view text) { csv += text; }).moves, 6);
  EXPECT_EQ(csv, "step,layer,expert,from,to\n20,1,1,0,1\n20,1,2,1,0\n25,1,1,1,0\n25,1,2,0,1\n30,1,0,0,1\n30,1,2,1,0\n");
  EXPECT_EQ(write_moves_csv(RoutingReader(file_), {.layers = {{5, 20}}}, [](std::string_view) {}).moves, 0);
  // A run that continues after step 25 had that placement, and one after step 20 the moves of that step.
  { RoutingLog log(file_, placed_layers({0, 0, 1}), 25); }
  EXPECT_EQ(read_routing(file_).moves, both);
  { RoutingLog log(file_, placed_layers({0, 1, 0}), 20); }
  EXPECT_EQ(read_routing(file_).moves, there);
  EXPECT_EQ(read_routing(file_).layers[0].expert_rank, (std::vector<std::int64_t>{0, 1, 0}));
  {  // another placement from the start
    RoutingLog log(file_, placed_layers({1, 1, 0}), 20);
    append(log, 30);
  }
  EXPECT_EQ(ranks_in_csv(file_), (std::vector<std::string>{"001", "001", "110"}));
  const std::vector<ExpertMove> moves = read_routing(file_).moves;
  ASSERT_EQ(moves.size(), 3u);
  EXPECT_EQ(moves.back(), (ExpertMove{20, 1, 0, 0, 1}));
  { RoutingLog log(file_, two_layers(), -1); }
  EXPECT_TRUE(read_routing(file_).moves.empty());
}

ReplicaCounts replicas_at(std::int64_t step) {
  return {.replicas = {step, 0, 2}, .tokens = {10 * step, 0, 5}, .kept = step - 1, .sent = 3, .bytes = 300 * step};
}

void append_with_replicas(RoutingLog& log, std::int64_t step) {
  std::vector<LayerRouting> record = record_of(step, two_layers());
  record[0].replicas = replicas_at(step);
  log.append(step, record);
}

/// A run that begins without replicas, continues with them, and then without.
TEST_F(RoutingLogTest, ReplicasAreKeptFromTheFirstRecordThatHasThem) {
  {
    RoutingLog log(file_, two_layers(), -1);
    append(log, 10);
    append(log, 20);
    EXPECT_FALSE(hdf5::File::open(file_).has("/layers/001/replicas"));
    append_with_replicas(log, 30);
    append_with_replicas(log, 40);
    append_with_replicas(log, 50);
  }
  {
    RoutingLog log(file_, two_layers(), 45);
    append(log, 60);
  }
  expect_records(file_, {10, 20, 30, 40, 60});
  const ReplicaCounts none{.replicas = {0, 0, 0}, .tokens = {0, 0, 0}};
  const RoutingHistory history = read_routing(file_);
  EXPECT_EQ(history.layers[0].replicas, (std::vector{none, none, replicas_at(30), replicas_at(40), none}));
  EXPECT_TRUE(history.layers[1].replicas.empty());
  EXPECT_EQ(RoutingReader(file_).read(0, {2, 4}).replicas, (std::vector{replicas_at(30), replicas_at(40)}));
  EXPECT_EQ(replica_counts(history.layers[0], {0, 5}).replicas, (std::vector<std::int64_t>{70, 0, 4}));
  const std::string table = routing_table(RoutingReader(file_), {1, 4}, false);
  EXPECT_NE(table.find("layer1        74           2    70          0     710"), std::string::npos) << table;
  EXPECT_EQ(routing_table(RoutingReader(file_), {0, 2}, false).find("Replicas"), std::string::npos);
  EXPECT_EQ(hdf5::File::open(file_).object("/layers/001/replica_tokens").integers("expert_rank"),
            two_layers()[0].expert_rank);
  {  // the file begins anew
    RoutingLog log(file_, two_layers(), 5);
    append(log, 6);
  }
  EXPECT_TRUE(read_routing(file_).layers[0].replicas.empty());
}

/// A version without replicas appends records, but no rows to their datasets.
TEST_F(RoutingLogTest, ReplicasThatAnOlderVersionDidNotContinueAreAbsent) {
  {
    RoutingLog log(file_, two_layers(), -1);
    for (const std::int64_t step : {10, 20, 30}) append_with_replicas(log, step);
  }
  {
    hdf5::File file = hdf5::File::edit(file_);
    for (const char* name : {"replicas", "replica_tokens", "replicas_kept", "replicas_sent", "replica_bytes"}) {
      hdf5::Dataset dataset = file.dataset(std::string("/layers/001/") + name);
      Shape shape = dataset.shape();
      shape[0] = 2;
      dataset.resize(shape);
    }
    file.close();
  }
  EXPECT_TRUE(read_routing(file_).layers[0].replicas.empty());
  {
    RoutingLog log(file_, two_layers(), 30);
    append_with_replicas(log, 40);
  }
  const ReplicaCounts none{.replicas = {0, 0, 0}, .tokens = {0, 0, 0}};
  EXPECT_EQ(read_routing(file_).layers[0].replicas, (std::vector{none, none, none, replicas_at(40)}));
}

TEST_F(RoutingLogTest, ReplicasFollowTheRanksOfExperts) {
  RoutingLog log(file_, placed_layers({0, 0, 1}), -1);
  append_with_replicas(log, 10);
  log.place(10, placed_layers({0, 1, 0}));
  EXPECT_EQ(hdf5::File::open(file_).object("/layers/001/replicas").integers("expert_rank"),
            (std::vector<std::int64_t>{0, 1, 0}));
  std::vector<LayerRouting> wrong = record_of(20, two_layers());
  wrong[0].replicas = {.replicas = {1, 2}, .tokens = {1, 2}};
  EXPECT_THROW(log.append(20, wrong), Error);
  append_with_replicas(log, 20);
  EXPECT_EQ(read_routing(file_).layers[0].replicas, (std::vector{replicas_at(10), replicas_at(20)}));
}

TEST_F(RoutingLogTest, ReplicasThatAreNoCountsAreErrors) {
  {
    RoutingLog log(file_, two_layers(), -1);
    append_with_replicas(log, 10);
  }
  const auto write = [&](const char* name, const std::vector<std::int64_t>& values) {
    hdf5::File file = hdf5::File::edit(file_);
    file.dataset(name).write(values.data());
    file.close();
  };
  write("/layers/001/replica_tokens", {1, -2, 3});
  expect_bad_input([&] { read_routing(file_); }, "/layers/001/replica_tokens contains a negative number");
  write("/layers/001/replica_tokens", {1, 2, 3});
  write("/layers/001/replica_bytes", {-1});
  expect_bad_input([&] { read_routing(file_); }, "/layers/001/replica_bytes contains a negative number");
}

TEST_F(RoutingLogTest, MovesThatCannotBeWrittenAreAddedByTheNextOpening) {
  RoutingLog log(file_, placed_layers({0, 0, 1}), -1);
  append(log, 10);
  const int reader = open(file_.c_str(), O_RDWR);
  ASSERT_EQ(flock(reader, LOCK_EX), 0);
  try {
    log.place(10, placed_layers({0, 1, 0}));  // fails, or waits in the journal
  } catch (const Error&) {
  }
  close(reader);
  RoutingLog again(file_, placed_layers({0, 1, 0}), 12);
  const RoutingHistory history = read_routing(file_);
  EXPECT_EQ(history.layers[0].expert_rank, (std::vector<std::int64_t>{0, 1, 0}));
  EXPECT_EQ(history.moves.size(), 2u);
}

/// A run that starts again before its first record continues as one that was not interrupted.
TEST_F(RoutingLogTest, MovesBeforeTheFirstRecordAreKept) {
  const auto finish = [](RoutingLog& log) {
    append(log, 10);
    log.place(15, placed_layers({1, 0, 0}));
    append(log, 20);
  };
  {
    RoutingLog log(file_, placed_layers({0, 0, 1}), -1);
    log.place(5, placed_layers({0, 1, 0}));
    finish(log);
  }
  const RoutingHistory whole = read_routing(file_);
  const std::vector<std::string> ranks = ranks_in_csv(file_);
  {
    RoutingLog log(file_, placed_layers({0, 0, 1}), -1);
    log.place(5, placed_layers({0, 1, 0}));
    log.place(8, placed_layers({1, 1, 0}));
  }
  RoutingLog log(file_, placed_layers({0, 1, 0}), 7);
  EXPECT_EQ(log.last_step(), -1);
  finish(log);
  EXPECT_EQ(read_routing(file_).moves, whole.moves);
  EXPECT_EQ(read_routing(file_).steps, whole.steps);
  EXPECT_EQ(ranks_in_csv(file_), ranks);
}

void set_ranks(const std::filesystem::path& path, const std::vector<std::int64_t>& ranks) {
  hdf5::File file = hdf5::File::edit(path);
  file.object("/layers/001").set("expert_rank", ranks);
  file.close();
}

/// A program that does not know moves changes expert_rank only. The moves before that say nothing.
TEST_F(RoutingLogTest, MovesThatDisagreeWithTheRanksAreUnknown) {
  {
    RoutingLog log(file_, placed_layers({0, 0, 1}), -1);
    append(log, 10);
    log.place(10, placed_layers({0, 1, 0}));
    append(log, 20);
  }
  set_ranks(file_, {1, 0, 0});
  const auto moves_in_csv = [&] { return write_moves_csv(RoutingReader(file_), {}, [](std::string_view) {}); };
  EXPECT_EQ(moves_in_csv().moves, 1);  // expert 2 to rank 0, the newer of two moves, agrees
  EXPECT_EQ(moves_in_csv().unknown, 1);
  set_ranks(file_, {1, 0, 1});
  EXPECT_EQ(moves_in_csv().moves, 0);
  EXPECT_EQ(moves_in_csv().unknown, 2);
  EXPECT_EQ(ranks_in_csv(file_), (std::vector<std::string>{"101", "101"}));
  {
    RoutingLog log(file_, placed_layers({1, 0, 1}), 20);  // removes them
    log.place(25, placed_layers({0, 1, 1}));
    append(log, 30);
    append(log, 40);
  }
  EXPECT_EQ(read_routing(file_).moves, (std::vector<ExpertMove>{{25, 1, 0, 1, 0}, {25, 1, 1, 0, 1}}));
  EXPECT_EQ(moves_in_csv().unknown, 0);
  EXPECT_EQ(ranks_in_csv(file_), (std::vector<std::string>{"101", "101", "011", "011"}));
}

/// Moves are read in parts of 65536.
TEST_F(RoutingLogTest, ManyMovesAreReadInParts) {
  constexpr std::int64_t steps = 150'000;
  RoutingHistory history;
  history.layers.push_back({.id = {1},
                            .top_k = 1,
                            .experts = 2,
                            .expert_sizes = {8, 8},
                            .expert_rank = {0, 1},
                            .counts = {},
                            .mean_probability = {}});
  for (std::int64_t step = 1; step <= steps; ++step) {
    history.moves.push_back({step, 1, 0, step % 2 == 0 ? 1 : 0, step % 2 == 0 ? 0 : 1});
  }
  const RoutingReader log(history);
  EXPECT_EQ(read_known_moves(log), history.moves);
  RanksOfExperts ranks(log);
  for (const std::int64_t step : {1, 2, 3, 65'536, 65'537, 65'538, 140'001}) {
    ranks.advance(step);
    EXPECT_EQ(ranks.of(0).front(), (step - 1) % 2) << step;
  }
  std::int64_t bytes = 0, parts = 0;
  write_moves_csv(log, {}, [&](std::string_view text) { bytes += std::ssize(text), ++parts; });
  EXPECT_GT(bytes, 14 * steps);
  EXPECT_GT(parts, 2);
}

TEST_F(RoutingLogTest, MovesOfUnknownExpertsAreDamage) {
  for (const auto& [move, words] : std::vector<std::pair<std::vector<std::int64_t>, std::string>>{
           {{20, 1, 3, 0, 1}, "moves expert 3 of layer 1"},
           {{20, 2, 0, 0, 1}, "moves expert 0 of layer 2"},
           {{20, 1, 2, -1, 1}, "moves expert 2 of layer 1 from rank -1"}}) {
    {
      RoutingLog log(file_, placed_layers({0, 0, 1}), -1);
      append(log, 10);
    }
    {
      hdf5::File file = hdf5::File::edit(file_);
      file.create_dataset("/moves", DType::i64, {1, 5}).write(move.data());
      file.close();
    }
    expect_bad_input([&] { read_routing(file_); }, words);
  }
}

TEST_F(RoutingLogTest, AnotherModelsFileIsRefusedUnlessNothingOfItStays) {
  {
    RoutingLog log(file_, two_layers(), -1);
    append(log, 10);
  }
  std::vector<RoutingLog::Layer> other = two_layers();
  other[0].expert_sizes = {8, 16, 25};
  expect_bad_input([&] { RoutingLog(file_, other, 10); }, "different layers or experts");
  { RoutingLog log(file_, other, -1); }
  EXPECT_EQ(read_routing(file_).layers[0].expert_sizes, other[0].expert_sizes);
}

TEST_F(RoutingLogTest, AReaderThatHoldsTheFileKeepsItsOwnVersion) {
  RoutingLog log(file_, two_layers(), -1);
  append(log, 1);
  const int reader = open(file_.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(reader, LOCK_SH), 0);  // the lock that h5py holds
  const off_t size = lseek(reader, 0, SEEK_END);
  const auto bytes = [&] {  // the file may grow: HDF5 does not look behind the end that it read when it opened the file
    std::string data(static_cast<std::size_t>(size), '\0');
    EXPECT_EQ(pread(reader, data.data(), data.size(), 0), static_cast<ssize_t>(data.size()));
    return data;
  };
  const std::string before = bytes();
  for (const std::int64_t step : {2, 3, 4, 5}) append(log, step);
  EXPECT_EQ(bytes(), before);
  expect_records(file_, {1, 2, 3, 4, 5});
  EXPECT_FALSE(log.finish());
  close(reader);
  EXPECT_TRUE(log.finish());
  EXPECT_EQ(files_there(), 1u);
  append(log, 6);
  expect_records(file_, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(files_there(), 1u) << "without readers there is no journal";
}

// A program that may write the file locks readers out. A run then continues, and tries again with its next record.
TEST_F(RoutingLogTest, ALockedFileIsAFailureThatPasses) {
  {
    RoutingLog log(file_, two_layers(), -1);
    append(log, 1);
  }
  const int writer = open(file_.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(writer, LOCK_EX), 0);  // the lock that h5py holds in its mode r+
  expect_failure([&] { const RoutingLog log(file_, two_layers(), 1); }, "another process has locked it");
  close(writer);
  RoutingLog log(file_, two_layers(), 1);
  append(log, 2);
  expect_records(file_, {1, 2});
}

// A child process appends records in a loop and is killed at a random time. The file must then be complete.
TEST_F(RoutingLogTest, AKillAtAnyInstantLosesAtMostTheNewestRecord) {
  std::mt19937 random(7);
  std::int64_t resume = -1;
  std::vector<std::int64_t> steps;
  for (int round = 0; round < 25; ++round) {
    int reported[2];  // the child writes each step for which append() has returned
    ASSERT_EQ(pipe(reported), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(reported[0]);
      RoutingLog log(file_, two_layers(), resume);
      for (std::int64_t step = resume + 1;; ++step) {
        append(log, step);
        if (write(reported[1], &step, sizeof step) != sizeof step) _exit(1);
      }
    }
    close(reported[1]);
    std::int64_t finished = resume, step = 0;
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(read(reported[0], &step, sizeof step), static_cast<ssize_t>(sizeof step));
      finished = step;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    while (read(reported[0], &step, sizeof step) == sizeof step) finished = step;
    close(reported[0]);
    const std::vector<std::int64_t> there = read_routing(file_).steps;
    ASSERT_FALSE(there.empty());
    EXPECT_GE(there.back(), finished) << "a record was lost after append returned";
    EXPECT_LE(there.back(), finished + 1);
    resume = std::max<std::int64_t>(there.back() - 1, 0);  // so the next round removes one record
    steps.clear();
    for (std::int64_t s = 0; s <= there.back(); ++s) steps.push_back(s);
    expect_records(file_, steps);
    if (HasFailure()) return;
  }
}

TEST_F(RoutingLogTest, AFullDiskLosesNothingThatStoodThere) {
  std::int64_t appended = 0;
  {
    RoutingLog log(file_, two_layers(), -1);
    append(log, 1);
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    const auto previous = signal(SIGXFSZ, SIG_IGN);
    const rlimit full{.rlim_cur = 4096, .rlim_max = limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
    EXPECT_THROW(append(log, 2), Error);
    EXPECT_THROW(append(log, 3), Error);
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, previous);
    expect_records(file_, {1});
    EXPECT_EQ(log.last_step(), 1);
    for (const std::int64_t step : {2, 3, 4}) append(log, step);
    EXPECT_EQ(log.last_step(), 4);
    appended = 4;
  }
  EXPECT_EQ(appended, 4);
  expect_records(file_, {1, 2, 3, 4});
}

/// Writes a log in the layout of the versions that rewrote the whole file: without compression, in chunks of several
/// records, and with the attributes and datasets that all versions have had.
void write_old_log(const std::filesystem::path& path, const std::vector<std::int64_t>& steps) {
  hdf5::File file = hdf5::File::create(path);
  file.set("format", "lyceum.routing");
  file.set("format_version", 1);
  file.create_dataset("/step", DType::i64, {std::ssize(steps)}, {.growing = true}).write(steps.data());
  for (const RoutingLog::Layer& layer : two_layers()) {
    const std::string group = fmt::format("/layers/{:03}", layer.id.layer);
    const auto experts = static_cast<std::int64_t>(layer.expert_sizes.size());
    std::vector<std::int64_t> counts;
    std::vector<float> probability;
    for (const std::int64_t step : steps) {
      for (std::int64_t k = 0; k < layer.top_k; ++k) {
        for (std::int64_t e = 0; e < experts; ++e) counts.push_back(tokens_at(step, layer.id.layer, k, e));
      }
      for (std::int64_t e = 0; e < experts; ++e) probability.push_back(probability_at(step, e));
    }
    file.create_dataset(group + "/counts", DType::i64, {std::ssize(steps), layer.top_k, experts}, {.growing = true})
        .write(counts.data());
    file.create_dataset(group + "/mean_probability", DType::f32, {std::ssize(steps), experts}, {.growing = true})
        .write(probability.data());
    for (const char* const member : {"", "/counts", "/mean_probability"}) {
      hdf5::Object object = file.object(group + member);
      object.set("expert_sizes", layer.expert_sizes);
      object.set("expert_rank", layer.expert_rank);
    }
  }
  file.close();
}

TEST_F(RoutingLogTest, AFileOfAnOlderVersionIsReadAndContinued) {
  write_old_log(file_, {1, 2, 3, 4});
  const RoutingHistory old = read_routing(file_);
  EXPECT_EQ(old.steps, (std::vector<std::int64_t>{1, 2, 3, 4}));
  {
    RoutingLog log(file_, two_layers(), 3);
    for (const std::int64_t step : {5, 6}) append(log, step);
  }
  const RoutingHistory now = read_routing(file_);
  EXPECT_EQ(now.steps, (std::vector<std::int64_t>{1, 2, 3, 5, 6}));
  for (std::size_t l = 0; l < now.layers.size(); ++l) {
    const RoutingHistory::Layer& layer = now.layers[l];
    const std::size_t record = static_cast<std::size_t>(layer.top_k * layer.experts);
    for (std::size_t r = 0; r < now.steps.size(); ++r) {
      const LayerRouting expected = record_of(now.steps[r], two_layers())[l];
      for (std::size_t i = 0; i < record; ++i) EXPECT_EQ(layer.counts[r * record + i], expected.counts[i]);
      for (std::size_t e = 0; e < expected.mean_probability.size(); ++e) {
        EXPECT_EQ(layer.mean_probability[r * expected.mean_probability.size() + e], expected.mean_probability[e]);
      }
      EXPECT_EQ(std::isnan(layer.mean_entropy[r]), now.steps[r] <= 3);
    }
  }
}

TEST_F(RoutingLogTest, AHardLinkKeepsTheOldRecords) {
  {
    RoutingLog log(file_, two_layers(), -1);
    append(log, 1);
  }
  const std::filesystem::path backup = directory_.path() / "backup.h5";
  std::filesystem::create_hard_link(file_, backup);
  {
    RoutingLog log(file_, two_layers(), 1);
    append(log, 2);
  }
  expect_records(backup, {1});
  expect_records(file_, {1, 2});
}

// A record of a large model takes the space of its compressed counts, and its cost does not grow with the number of
// records in the file.
TEST_F(RoutingLogTest, ARecordIsCompressedAndAppendedInPlace) {
  constexpr std::int64_t experts = 256, choices = 8;
  const std::vector<RoutingLog::Layer> layers{{.id = {0},
                                               .top_k = choices,
                                               .expert_sizes = std::vector<std::int64_t>(experts, 64),
                                               .expert_rank = std::vector<std::int64_t>(experts, 0)}};
  std::mt19937 random(2);
  RoutingLog log(file_, layers, -1);
  std::vector<std::int64_t> all;
  std::uintmax_t first_size = 0;
  for (std::int64_t step = 1; step <= 60; ++step) {
    LayerRouting record{
        .id = {0}, .top_k = choices, .experts = experts, .counts = {}, .mean_probability = std::vector(experts, 0.5f)};
    for (std::int64_t i = 0; i < choices * experts; ++i) record.counts.push_back(random() % (1 << 12));
    all.insert(all.end(), record.counts.begin(), record.counts.end());
    log.append(step, std::span(&record, 1));
    if (step == 20) first_size = std::filesystem::file_size(file_);
  }
  const auto last_size = std::filesystem::file_size(file_);
  EXPECT_LT(last_size - first_size, 40u * choices * experts * 2) << "12 random bits of a count take less than 2 bytes";
  EXPECT_EQ(read_routing(file_).layers[0].counts, all);
  const RoutingReader reader(file_);
  EXPECT_EQ(reader.read(0, {17, 19}).counts,
            std::vector(all.begin() + 17 * choices * experts, all.begin() + 19 * choices * experts));
}

TEST_F(RoutingLogTest, DamagedFilesAreErrorsThatNameTheFile) {
  expect_bad_input([&] { read_routing(file_); }, "no such file");
  {
    RoutingLog log(file_, two_layers(), -1);
    for (const std::int64_t step : {1, 2, 3}) append(log, step);
  }
  std::ifstream in(file_, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  const auto replace = [&](const std::string& bytes) { std::ofstream(file_, std::ios::binary) << bytes; };
  replace("");
  expect_bad_input([&] { read_routing(file_); }, "routing.h5");
  replace("no HDF5 at all");
  expect_bad_input([&] { read_routing(file_); }, "routing.h5");
  replace(whole.substr(0, whole.size() / 2));
  expect_bad_input([&] { read_routing(file_); }, "routing.h5");
  expect_bad_input([&] { RoutingLog(file_, two_layers(), 3); }, "routing.h5");
  // Any single damaged byte is either detected or in a part of the file without contents.
  replace(whole);
  const RoutingHistory truth = read_routing(file_);
  std::mt19937 random(3);
  int noticed = 0;
  for (int i = 0; i < 300; ++i) {
    std::string bytes = whole;
    bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    replace(bytes);
    try {
      const RoutingHistory history = read_routing(file_);
      EXPECT_EQ(history.steps, truth.steps);
      for (std::size_t l = 0; l < truth.layers.size(); ++l) EXPECT_EQ(history.layers[l].counts, truth.layers[l].counts);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      ++noticed;
    }
  }
  EXPECT_GT(noticed, 0);
}

TEST_F(RoutingLogTest, AnOlderFileGetsFiguresOfStepsAndItsOriginFromNowOn) {
  const RoutingLog::Origin origin{.run_uuid = "12-34", .description = "a run"};
  {
    RoutingLog log(file_, two_layers(), -1, origin);
    for (const std::int64_t step : {1, 2}) append(log, step);
  }
  const auto edit = [&](const std::function<void(hid_t)>& change) {
    const hid_t file = H5Fopen(file_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    change(file);
    H5Fclose(file);
  };
  edit([](hid_t file) {
    for (const std::string name : {"max_vio_mean", "max_vio_max", "idle_mean", "idle_max"}) {
      for (const std::string layer : {"001", "012"}) {
        ASSERT_GE(H5Ldelete(file, ("/layers/" + layer + "/step_" + name).c_str(), H5P_DEFAULT), 0);
      }
    }
    ASSERT_GE(H5Adelete(file, "run_uuid"), 0);
    ASSERT_GE(H5Adelete(file, "description"), 0);
  });
  const RoutingHistory old = read_routing(file_);
  EXPECT_TRUE(old.layers[0].steps.empty());
  EXPECT_FALSE(has_step_balance(old, {0, 2}));
  EXPECT_EQ(routing_table(old, {0, 2}, false).find("Single steps"), std::string::npos);
  {
    RoutingLog log(file_, two_layers(), 2, origin);
    append(log, 4);
  }
  const RoutingHistory now = read_routing(file_);
  ASSERT_EQ(now.layers[1].steps.size(), 3u);
  EXPECT_TRUE(std::isnan(now.layers[1].steps[1].max_vio_mean));
  EXPECT_EQ(now.layers[1].steps[2].max_vio_max, 17);
  EXPECT_EQ(step_balance(now.layers[1], {0, 3}).idle_mean, 8) << "over the records that contain it";
  EXPECT_NE(routing_table(now, {0, 3}, false).find("Single steps"), std::string::npos);
  const hdf5::File file = hdf5::File::open(file_);
  EXPECT_EQ(file.text("run_uuid"), "12-34");
  EXPECT_EQ(file.text("description"), "a run");
}

// A log of an older version is continued, and gets the datasets that this version adds.
TEST_F(RoutingLogTest, AFileWithoutEntropiesGetsThemFromNowOn) {
  {
    RoutingLog log(file_, two_layers(), -1);
    for (const std::int64_t step : {1, 2, 3}) append(log, step);
  }
  const auto remove = [&](const char* name) {
    const hid_t file = H5Fopen(file_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    ASSERT_GE(H5Ldelete(file, name, H5P_DEFAULT), 0);
    H5Fclose(file);
  };
  remove("/layers/001/mean_entropy");
  remove("/layers/012/mean_entropy");
  EXPECT_TRUE(read_routing(file_).layers[0].mean_entropy.empty());
  EXPECT_FALSE(has_information(read_routing(file_), {0, 3}));
  {
    RoutingLog log(file_, two_layers(), 2);
    append(log, 4);
  }
  const std::vector<float> entropy = read_routing(file_).layers[1].mean_entropy;
  ASSERT_EQ(entropy.size(), 3u);
  EXPECT_TRUE(std::isnan(entropy[0]) && std::isnan(entropy[1]));
  EXPECT_EQ(entropy[2], 4.0f / 15);
  EXPECT_FALSE(has_information(read_routing(file_), {0, 2}));
  EXPECT_TRUE(has_information(read_routing(file_), {0, 3}));
}

}  // namespace
}  // namespace lyceum
