#include "io/data/loader/best_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/random.h"

namespace lyceum {
namespace {

/// The definition: a list of all sequences, searched from the first.
class Definition {
 public:
  explicit Definition(std::int64_t seq_len) : seq_len_(seq_len) {}
  std::int64_t place(std::int64_t inputs) {
    std::int64_t best = -1;
    for (std::int64_t s = 0; s < std::ssize(rooms_); ++s) {
      const std::int64_t room = rooms_[static_cast<std::size_t>(s)];
      if (room >= inputs && (best < 0 || room < rooms_[static_cast<std::size_t>(best)])) best = s;
    }
    if (best < 0) {
      best = std::ssize(rooms_);
      rooms_.push_back(seq_len_);
    }
    rooms_[static_cast<std::size_t>(best)] -= inputs;
    return best;
  }
  std::int64_t sequences() const { return std::ssize(rooms_); }

 private:
  std::int64_t seq_len_;
  std::vector<std::int64_t> rooms_;
};

TEST(BestFitOf, IsItsDefinition) {
  for (const std::int64_t seq_len : {1, 2, 63, 64, 65, 700, 4096, 5000}) {
    for (const std::int64_t least : {std::int64_t{1}, (seq_len + 3) / 4}) {
      Definition expected(seq_len);
      BestFit fit(seq_len, least);
      const Philox random(3, "spans");
      for (std::uint64_t i = 0; i < 3000; ++i) {
        const std::int64_t most = i % 3 == 0 ? seq_len : std::min(seq_len, 2 * least);
        const auto inputs =
            least + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most - least + 1), i));
        ASSERT_EQ(fit.place(inputs), expected.place(inputs)) << seq_len << ' ' << least << ' ' << i;
      }
      EXPECT_EQ(fit.sequences(), expected.sequences());
    }
  }
}

TEST(BestFitOf, RefusesSpansThatItWasNotMadeFor) {
  BestFit fit(10, 3);
  EXPECT_THROW(fit.place(2), Error);
  EXPECT_THROW(fit.place(11), Error);
  EXPECT_EQ(fit.place(3), 0);
  EXPECT_THROW(BestFit(10, 0), Error);
  EXPECT_THROW(BestFit(10, 11), Error);
}

}  // namespace
}  // namespace lyceum
