#include "io/files/journaled_hdf5.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/files/atomic_file.h"
#include "io/files/journal.h"
#include "io/files/whole_file.h"
#include "support/errors.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;

class JournaledHdf5Test : public testing::Test {
 protected:
  /// Creates a file with a dataset of no rows, and one that is rewritten in place.
  void SetUp() override {
    hdf5::File file = hdf5::File::create(file_);
    file.create_dataset("rows", DType::i64, {0, width}, {.chunk = {1, width}, .growing = true, .compressed = true});
    file.create_dataset("sum", DType::i64, {1}).write(std::vector<std::int64_t>{0}.data());
    file.close();
  }
  /// Appends a row with this value in each element, and adds it to the sum.
  static void add(hdf5::File& file, std::int64_t value) {
    hdf5::Dataset rows = file.dataset("rows"), sum = file.dataset("sum");
    const std::int64_t count = rows.shape()[0], before = sum.read<std::int64_t>()[0];
    rows.resize({count + 1, width});
    rows.write({.offset = {count, 0}, .extent = {1, width}}, std::vector<std::int64_t>(width, value).data());
    sum.write(std::vector<std::int64_t>{before + value}.data());
  }
  static void add(JournaledHdf5& log, std::int64_t value) {
    log.edit([&](hdf5::File& file) { add(file, value); });
  }
  /// Expects that a file has exactly these rows and their sum.
  static void expect_rows(const hdf5::File& file, const std::vector<std::int64_t>& values) {
    const std::vector<std::int64_t> rows = file.dataset("rows").read<std::int64_t>();
    ASSERT_EQ(rows.size(), values.size() * width);
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i], values[i / width]);
    for (const std::int64_t value : values) sum += value;
    EXPECT_EQ(file.dataset("sum").read<std::int64_t>()[0], sum);
  }
  void expect_shared(const std::vector<std::int64_t>& values) const {
    expect_rows(open_journaled(file_)->file(), values);
  }
  /// Expects what readers see that know nothing of the journal.
  void expect_plain(const std::vector<std::int64_t>& values) const { expect_rows(hdf5::File::open(file_), values); }
  bool journal_exists() const { return fs::exists(JournaledHdf5::journal_of(file_)); }

  static constexpr std::int64_t width = 200;
  TemporaryDirectory directory_;
  fs::path file_ = directory_.path() / "log.h5";
};

TEST_F(JournaledHdf5Test, ChangesAreVisibleOnceTheyAreSettled) {
  JournaledHdf5 log(file_);
  add(log, 5);
  EXPECT_TRUE(journal_exists());
  expect_plain({});
  expect_shared({5});
  EXPECT_TRUE(log.settle());
  EXPECT_FALSE(journal_exists());
  expect_plain({5});
  add(log, 7);
  add(log, 9);  // includes the change before it
  expect_shared({5, 7, 9});
  expect_plain({5});
  EXPECT_TRUE(log.settle());
  expect_plain({5, 7, 9});
}

TEST_F(JournaledHdf5Test, AReaderKeepsTheFileAsItIs) {
  JournaledHdf5 log(file_);
  add(log, 1);
  const std::unique_ptr<SharedHdf5> first = open_journaled(file_);
  EXPECT_FALSE(log.settle());
  for (const std::int64_t value : {2, 3, 4}) {
    add(log, value);
    EXPECT_FALSE(log.settle());
  }
  expect_rows(first->file(), {1});
  expect_shared({1, 2, 3, 4});
  expect_plain({});
  const int other = open(file_.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(other, LOCK_SH), 0);  // the lock of HDF5's own readers
  EXPECT_FALSE(log.settle());
  close(other);
  expect_rows(first->file(), {1});
}

TEST_F(JournaledHdf5Test, TheDestructorSettles) {
  { add(*std::make_unique<JournaledHdf5>(file_), 3); }
  expect_plain({3});
  EXPECT_FALSE(journal_exists());
}

TEST_F(JournaledHdf5Test, AChangeThatThrowsChangesNothing) {
  JournaledHdf5 log(file_);
  add(log, 1);
  log.settle();
  const std::string before = read_whole_file(file_);
  const auto fails = [](hdf5::File& file) {
    add(file, 2);
    fail(ExitCode::failed, "on purpose");
  };
  EXPECT_THROW(log.edit(fails), Error);
  EXPECT_EQ(read_whole_file(file_), before);
  EXPECT_FALSE(journal_exists());
  add(log, 3);
  EXPECT_THROW(log.edit(fails), Error);
  expect_shared({1, 3});
  log.settle();
  expect_plain({1, 3});
}

TEST_F(JournaledHdf5Test, AFullDiskChangesNothing) {
  JournaledHdf5 log(file_);
  std::vector<std::int64_t> values;
  std::uintmax_t size = 0;
  const auto add_one = [&] {
    size = fs::file_size(file_);
    const auto value = static_cast<std::int64_t>(values.size());
    add(log, value);
    values.push_back(value);
  };
  add_one();
  {
    const FileSizeLimit full(fs::file_size(file_) + 4096);
    expect_failure(
        [&] {
          while (values.size() < 1000) add_one();
        },
        "log.h5");
  }
  EXPECT_GT(values.size(), 1U);
  EXPECT_EQ(fs::file_size(file_), size);
  expect_shared(values);
  add_one();
  log.settle();
  expect_plain(values);
}

/// The files of a change, copied at some moment: a kill at that moment leaves them.
struct Moment {
  std::string file;
  std::optional<std::string> journal;
};

// A process may be killed, or a machine may lose power, at each moment of a change. Half-written pages are possible.
TEST_F(JournaledHdf5Test, AnyInterruptedChangeIsCompletedOrUndone) {
  const fs::path journal = JournaledHdf5::journal_of(file_);
  const auto now = [&] {
    return Moment{.file = read_whole_file(file_),
                  .journal = fs::exists(journal) ? std::optional(read_whole_file(journal)) : std::nullopt};
  };
  std::vector<std::pair<Moment, std::vector<std::int64_t>>> moments;  // with the rows that must be there
  {
    JournaledHdf5 log(file_);
    add(log, 1);
    log.settle();
    moments.emplace_back(now(), std::vector<std::int64_t>{1});
    add(log, 2);
    const Moment made = now();
    moments.emplace_back(made, std::vector<std::int64_t>{1, 2});
    // Killed before the journal had its name: what was appended is there.
    moments.push_back({{.file = made.file, .journal = {}}, {1}});
    // A journal that was not written to the end, or is of another file.
    for (const std::size_t left : {std::size_t{0}, std::size_t{100}, made.journal->size() - 1}) {
      moments.push_back({{.file = made.file, .journal = made.journal->substr(0, left)}, {1}});
    }
    std::string damaged = *made.journal;
    damaged[damaged.size() / 2] ^= 1;
    moments.push_back({{.file = made.file, .journal = damaged}, {1}});
    // Killed while the changes were written: some pages are new. A power failure may write any of them.
    const std::shared_ptr<HeldWrites> changes = read_journal(journal, file_);
    ASSERT_TRUE(changes);
    ASSERT_GT(changes->pages().size(), 3u);
    std::mt19937 random(5);
    for (int i = 0; i < 40; ++i) {
      std::string file = made.file;
      file.resize(std::max<std::size_t>(file.size(), static_cast<std::size_t>(changes->end)));
      for (const auto& [index, page] : changes->pages()) {
        const auto at = static_cast<std::size_t>(index * HeldWrites::page_bytes);
        if (random() % 2 == 0 || at + page.size() > file.size()) continue;
        file.replace(at, page.size(), reinterpret_cast<const char*>(page.data()), page.size());
      }
      moments.push_back({{.file = file, .journal = made.journal}, {1, 2}});
    }
    log.settle();
    moments.push_back({{.file = read_whole_file(file_), .journal = made.journal}, {1, 2}});
    moments.push_back({now(), {1, 2}});
  }
  for (std::size_t i = 0; i < moments.size(); ++i) {
    auto [moment, values] = moments[i];
    SCOPED_TRACE(i);
    write_file(file_, moment.file);
    fs::remove(journal);
    if (moment.journal) write_file(journal, *moment.journal);
    expect_shared(values);
    {
      JournaledHdf5 log(file_);
      expect_plain(values);
      EXPECT_FALSE(journal_exists());
      add(log, 70);
    }
    values.push_back(70);
    expect_plain(values);
    if (HasFailure()) return;
  }
}

TEST_F(JournaledHdf5Test, TheJournalOfAnotherFileIsIgnored) {
  {
    JournaledHdf5 log(file_);
    add(log, 1);
    fs::copy_file(JournaledHdf5::journal_of(file_), directory_.path() / "journal");
    log.settle();
    add(log, 2);
  }
  fs::rename(directory_.path() / "journal", JournaledHdf5::journal_of(file_));
  expect_shared({1, 2});
  { const JournaledHdf5 log(file_); }
  expect_plain({1, 2});
  EXPECT_FALSE(journal_exists());
}

// A copy takes the file before a change that appends to it, and the journal after it.
TEST_F(JournaledHdf5Test, TheJournalOfALongerFileIsIgnored) {
  const fs::path journal = JournaledHdf5::journal_of(file_);
  std::vector<std::int64_t> values;
  std::string before, kept;
  {
    JournaledHdf5 log(file_);
    do {  // small rows may fit into space that HDF5 has reserved
      log.settle();
      before = read_whole_file(file_);
      values.push_back(std::ssize(values));
      add(log, values.back());
    } while (fs::file_size(file_) == before.size() && values.size() < 1000);
    kept = read_whole_file(journal);
  }
  ASSERT_LT(values.size(), 1000U);
  values.pop_back();
  write_file(file_, before);
  write_file(journal, kept);
  expect_shared(values);
  { const JournaledHdf5 log(file_); }
  expect_plain(values);
}

TEST_F(JournaledHdf5Test, TheJournalOfAFileThatCannotBeReadIsKept) {
  const fs::path journal = JournaledHdf5::journal_of(file_), elsewhere = directory_.path() / "elsewhere";
  {
    JournaledHdf5 log(file_);
    add(log, 1);
    const std::string kept = read_whole_file(journal);
    log.settle();
    write_file(journal, kept);
  }
  fs::rename(file_, elsewhere);
  expect_failure([&] { const JournaledHdf5 log(file_); }, "log.h5: cannot be read: No such file or directory");
  EXPECT_TRUE(journal_exists());
  fs::rename(elsewhere, file_);
  { const JournaledHdf5 log(file_); }
  expect_plain({1});
  EXPECT_FALSE(journal_exists());
}

TEST_F(JournaledHdf5Test, RowsThatAreRemovedCanBeWrittenAgain) {
  JournaledHdf5 log(file_);
  std::vector<std::int64_t> values;
  for (std::int64_t value = 1; value <= 40; ++value) {
    add(log, value);
    if (value % 3 == 0) log.settle();
    values.push_back(value);
    if (value % 10 != 0) continue;
    log.edit([&](hdf5::File& file) {
      hdf5::Dataset rows = file.dataset("rows");
      rows.resize({rows.shape()[0] - 5, width});
      std::int64_t sum = 0;
      values.resize(values.size() - 5);
      for (const std::int64_t left : values) sum += left;
      file.dataset("sum").write(&sum);
    });
    expect_shared(values);
  }
  log.settle();
  expect_plain(values);
}

TEST(HeldWrites, ReplaceWhatTheyHold) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "file";
  std::string expected(1000, 'a');
  write_file(path, expected);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  HeldWrites held(1000);
  EXPECT_EQ(held.limit(), 1024);
  expected.resize(1024, '\0');
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const std::size_t at = random() % 1100, count = random() % 400;
    const std::string text(count, static_cast<char>('b' + i % 20));
    const std::size_t kept = at < 1024 ? std::min(count, 1024 - at) : 0;
    EXPECT_EQ(held.hold(file, static_cast<std::int64_t>(at), std::as_bytes(std::span(text))),
              static_cast<std::int64_t>(kept));
    expected.replace(std::min<std::size_t>(at, 1024), kept, text, 0, kept);
    const std::size_t from = random() % 1024, length = random() % (1024 - from);
    std::string read = read_whole_file(path).substr(0, 1024);
    read.resize(1024, '\0');
    read = read.substr(from, length);
    held.replace(static_cast<std::int64_t>(from), std::as_writable_bytes(std::span(read)));
    EXPECT_EQ(read, expected.substr(from, length));
  }
  EXPECT_EQ(read_whole_file(path), std::string(1000, 'a'));
  held.end = 1000;
  ASSERT_TRUE(write_changes(file, held));
  close(file);
  EXPECT_EQ(read_whole_file(path), expected.substr(0, 1000));
}

}  // namespace
}  // namespace lyceum
