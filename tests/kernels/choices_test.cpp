#include "kernels/choices.h"

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

using Numbers = std::vector<std::int32_t>;

/// Returns random choices; some are −1.
Grid<std::int32_t> random_choices(std::int64_t tokens, std::int64_t k, std::uint64_t choices) {
  Grid<std::int32_t> index(tokens, k, 3);
  const Philox random(5, "choices");
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t j = 0; j < k; ++j) {
      index(t, j) = static_cast<std::int32_t>(random.below(choices + 1, static_cast<std::uint64_t>(t * k + j))) - 1;
    }
  }
  return index;
}

TEST(MapChoices, LeadsToPlacesOnceOrEveryTimeAndCounts) {
  const Numbers destination{2, -1, 0, 2, 2, -1, 3, 0};  // no choice has destination 1
  for (const auto& [tokens, k] : {std::pair{0, 2}, {1, 1}, {7, 3}, {341, 7}, {5000, 2}}) {
    const Grid<std::int32_t> index = random_choices(tokens, k, destination.size());
    std::vector<std::int64_t> expected_count(4);
    Grid<std::int32_t> each(tokens, k), first(tokens, k);
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::vector<bool> seen(4);
      for (std::int64_t j = 0; j < k; ++j) {
        const std::int32_t choice = index.at(t, j),
                           leads = choice < 0 ? -1 : destination[static_cast<std::size_t>(choice)];
        each(t, j) = first(t, j) = leads;
        if (leads < 0) continue;
        const auto p = static_cast<std::size_t>(leads);
        if (seen[p]) first(t, j) = -1;
        seen[p] = true;
        ++expected_count[p];
      }
    }
    for (const bool once : {false, true}) {
      for (const int threads : {1, 3}) {
        Grid<std::int32_t> y(tokens, k, 1);
        std::vector<std::int64_t> count(4, -7);
        launch_on(threads, MapChoices{index.matrix(), destination, y.matrix(), once, count});
        for (std::int64_t t = 0; t < tokens; ++t) {
          for (std::int64_t j = 0; j < k; ++j) EXPECT_EQ(y.at(t, j), once ? first.at(t, j) : each.at(t, j));
        }
        EXPECT_EQ(count, expected_count);
      }
    }
  }
}

TEST(MapChoices, NeedsNoCounts) {
  Grid<std::int32_t> index(1, 3), y(1, 3);
  index.values = {1, -1, 0};
  launch_on(1, MapChoices{index.matrix(), Numbers{5, 9}, y.matrix()});
  EXPECT_EQ(y.values, (Numbers{9, -1, 5}));
}

TEST(MapChoices, RefusesBadChoicesAndPlaces) {
  Grid<std::int32_t> index(1, 2), y(1, 2);
  std::vector<std::int64_t> count(2);
  for (const std::int32_t bad : {-2, 2}) {
    index.values = {0, bad};
    EXPECT_THROW(launch_on(1, MapChoices{index.matrix(), Numbers{0, 1}, y.matrix()}), Error);
  }
  index.values = {0, 1};
  for (const std::int32_t bad : {-2, 2}) {
    EXPECT_THROW(launch_on(1, MapChoices{index.matrix(), Numbers{0, bad}, y.matrix(), true, count}), Error);
  }
}

TEST(DivideChoices, GivesEachShareConsecutiveChoicesOfItsExpert) {
  // Experts 1 and 3 of 4 are divided; choice 4 is no expert of the table.
  const Numbers first_share{0, 0, 3, 3, 5}, destination{100, 101, 102, 3, 103};
  const std::vector<std::int64_t> share_begin{0, 5, 6, 0, 11};
  for (const auto& [tokens, k] : {std::pair{0, 2}, {1, 1}, {9, 3}, {341, 5}}) {
    const Grid<std::int32_t> index = random_choices(tokens, k, 5);
    std::vector<std::int64_t> position, first_position(5), count(5);
    for (const std::int32_t expert : index.values) {
      if (expert >= 0) ++count[static_cast<std::size_t>(expert)];
    }
    for (std::size_t e = 0; e < 4; ++e) first_position[e + 1] = first_position[e] + count[e];
    std::vector<std::int64_t> number(5);
    Grid<std::int32_t> expected(tokens, k);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t j = 0; j < k; ++j) {
        const std::int32_t choice = index.at(t, j);
        const std::int64_t n = choice < 0 ? 0 : number[static_cast<std::size_t>(choice)]++;
        position.push_back(choice < 0 || choice > 3 ? -1 : first_position[static_cast<std::size_t>(choice)] + n);
        expected(t, j) = choice == 1 ? (n < 5 ? 100 : n < 6 ? 101 : 102) : choice == 3 && n >= 11 ? 103 : choice;
      }
    }
    for (const int threads : {1, 3}) {
      Grid<std::int32_t> y(tokens, k, 1);
      launch_on(threads, DivideChoices{index.matrix(), position, first_position, first_share, share_begin, destination,
                                       y.matrix()});
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t j = 0; j < k; ++j) EXPECT_EQ(y.at(t, j), expected.at(t, j));
      }
    }
  }
}

TEST(DivideChoices, RefusesOperandsThatDoNotFit) {
  Grid<std::int32_t> index(1, 2), y(1, 2);
  index.values = {0, 1};
  const std::vector<std::int64_t> position{0, 1}, first{0, 1, 2}, begin{0};
  const Numbers shares{0, 1, 1}, destination{7};
  launch_on(1, DivideChoices{index.matrix(), position, first, shares, begin, destination, y.matrix()});
  EXPECT_EQ(y.values, (Numbers{7, 1}));
  const std::vector<std::int64_t> few{0};
  EXPECT_THROW(launch_on(1, DivideChoices{index.matrix(), few, first, shares, begin, destination, y.matrix()}), Error);
  EXPECT_THROW(launch_on(1, DivideChoices{index.matrix(), position, few, shares, begin, destination, y.matrix()}),
               Error);
}

}  // namespace
}  // namespace lyceum
