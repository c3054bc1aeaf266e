#include <numeric>

#include "kernels/permute.h"
#include "kernels/segments.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

using Numbers = std::vector<std::int64_t>;

struct Placed {
  Numbers begin, rows, arrived_of_segment, segment_of_arrived;
  bool operator==(const Placed&) const = default;
};

/// Runs PlaceInSegments for counts[source][expert] received rows. `spare`: rows of memory after the last segment.
Placed place(const std::vector<Numbers>& counts, std::int64_t spare) {
  const std::size_t experts = counts.at(0).size();
  Numbers arrived{0};
  for (const Numbers& source : counts) {
    for (const std::int64_t count : source) arrived.push_back(arrived.back() + count);
  }
  std::int64_t total = spare;
  for (std::size_t e = 0; e < experts; ++e) {
    std::int64_t rows = 0;
    for (const Numbers& source : counts) rows += source[e];
    total += (rows + 31) / 32 * 32;
  }
  const auto unset = [](std::int64_t size) { return Numbers(static_cast<std::size_t>(size), -7); };
  Placed placed{unset(std::ssize(counts[0]) + 1), unset(std::ssize(counts[0])), unset(total), unset(arrived.back())};
  launch_on(2,
            PlaceInSegments{arrived, placed.begin, placed.rows, placed.arrived_of_segment, placed.segment_of_arrived});
  return placed;
}

/// Returns the expected result: for each expert, the rows of all sources in order, then padding.
Placed naive(const std::vector<Numbers>& counts, std::int64_t spare) {
  Placed placed;
  Numbers first_of_source{0};
  for (const Numbers& source : counts) {
    first_of_source.push_back(std::accumulate(source.begin(), source.end(), first_of_source.back()));
  }
  placed.segment_of_arrived.resize(static_cast<std::size_t>(first_of_source.back()));
  for (std::size_t e = 0; e < counts[0].size(); ++e) {
    placed.begin.push_back(std::ssize(placed.arrived_of_segment));
    placed.rows.push_back(0);
    for (std::size_t s = 0; s < counts.size(); ++s) {
      const auto before = counts[s].begin() + static_cast<std::ptrdiff_t>(e);
      const std::int64_t first = std::accumulate(counts[s].begin(), before, first_of_source[s]);
      for (std::int64_t row = first; row < first + counts[s][e]; ++row) {
        placed.segment_of_arrived[static_cast<std::size_t>(row)] = std::ssize(placed.arrived_of_segment);
        placed.arrived_of_segment.push_back(row);
        ++placed.rows.back();
      }
    }
    while (placed.arrived_of_segment.size() % 32) placed.arrived_of_segment.push_back(-1);
  }
  placed.begin.push_back(std::ssize(placed.arrived_of_segment));
  placed.arrived_of_segment.resize(placed.arrived_of_segment.size() + static_cast<std::size_t>(spare), -1);
  return placed;
}

TEST(PlaceInSegments, SortsByExpertThenSource) {
  for (const std::vector<Numbers>& counts : std::vector<std::vector<Numbers>>{
           {{3, 0, 33, 32, 1}},
           {{0, 0, 0}},
           {{1, 2, 3}, {0, 40, 0}, {31, 1, 64}},
           {{5}},
           std::vector<Numbers>(4, Numbers(300, 2)),
       }) {
    for (const std::int64_t spare : {0, 1, 50}) EXPECT_EQ(place(counts, spare), naive(counts, spare));
  }
}

TEST(PlaceInSegments, RefusesOtherRowsThanWanted) {
  const Numbers arrived{0, 3, 3, 4, 6, 40, 41};  // of two sources for three experts
  const auto run = [&](const Numbers& wanted) {
    Numbers begin(4), rows(3), arrived_of_segment(128), segment_of_arrived(41);
    launch_on(2, PlaceInSegments{arrived, begin, rows, arrived_of_segment, segment_of_arrived, wanted});
    return rows;
  };
  EXPECT_EQ(run({5, 34, 2}), (Numbers{5, 34, 2}));
  for (const Numbers& wanted : {Numbers{5, 35, 2}, Numbers{5, 33, 3}, Numbers{0, 34, 2}, Numbers{5, 34}}) {
    EXPECT_THROW(run(wanted), Error);
  }
}

TEST(PlaceInSegments, LeavesGapsBetweenFixedSegments) {
  const Numbers arrived{0, 3, 3, 4}, fixed{0, 5, 5, 7};
  const auto run = [&](const Numbers& begins) {
    Placed placed{Numbers(4), Numbers(3), Numbers(8, -7), Numbers(6, -7)};
    launch_on(2, PlaceInSegments{.arrived = arrived,
                                 .begin = placed.begin,
                                 .rows = placed.rows,
                                 .arrived_of_segment = placed.arrived_of_segment,
                                 .segment_of_arrived = placed.segment_of_arrived,
                                 .fixed = begins});
    return placed;
  };
  EXPECT_EQ(run(fixed), (Placed{fixed, {3, 0, 1}, {0, 1, 2, -1, -1, 3, -1, -1}, {0, 1, 2, 5, -7, -7}}));
  EXPECT_EQ(run({0, 3, 3, 4}), (Placed{{0, 3, 3, 4}, {3, 0, 1}, {0, 1, 2, 3, -1, -1, -1, -1}, {0, 1, 2, 3, -7, -7}}));
  EXPECT_THROW(run({0, 2, 5, 7}), Error);
  EXPECT_THROW(run({0, 5, 7, 7}), Error);
  EXPECT_THROW(run({0, 5, 7}), Error);
}

/// The first segment is too long, although there is memory for all rows.
TEST(PlaceInSegments, RefusesMoreRowsThanTheMost) {
  const Numbers arrived{0, 33, 33, 34, 35, 35, 36};
  const auto run = [&](std::int64_t most, std::size_t memory) {
    Numbers begin(4), rows(3), arrived_of_segment(memory), segment_of_arrived(36);
    launch_on(2, PlaceInSegments{.arrived = arrived,
                                 .begin = begin,
                                 .rows = rows,
                                 .arrived_of_segment = arrived_of_segment,
                                 .segment_of_arrived = segment_of_arrived,
                                 .most = most});
    return rows;
  };
  EXPECT_EQ(run(34, 96), (Numbers{34, 0, 2}));
  EXPECT_THROW(run(33, 96), Error);
  EXPECT_THROW(run(33, 192), Error);
  EXPECT_THROW(run(34, 64), Error);
}

TEST(SplitPairs, TellsOfEachPartWhereItIs) {
  // Three tokens of two choices and six slots. Pair 4 has no slot, and slot 3 no pair.
  const Numbers slot_of_pair{4, 0, 1, 2, -1, 5}, pair_of_slot{1, 2, 3, -1, 0, 5};
  Numbers in_slots(18, -7), by_token(18, -7);
  launch_on(2, SplitPairs{slot_of_pair, pair_of_slot, 2, 3, in_slots, by_token});
  EXPECT_EQ(in_slots, (Numbers{12, 0, 13, 1, 14, 2, 3, 6, 4, 7, 5, 8, -1, 15, -1, 16, -1, 17}));
  EXPECT_EQ(by_token, (Numbers{1, 3, 5, 6, 8, 10, 7, 9, 11, -1, -1, -1, 0, 2, 4, 13, 15, 17}));
}

TEST(SplitPairs, RefusesMapsOfOtherLengths) {
  const Numbers pairs{0, 1};
  Numbers six(6), four(4);
  EXPECT_THROW(launch_on(1, SplitPairs{pairs, pairs, 2, 3, six, four}), Error);
  EXPECT_THROW(launch_on(1, SplitPairs{pairs, pairs, 2, 3, four, six}), Error);
  EXPECT_THROW(launch_on(1, SplitPairs{pairs, pairs, 3, 3, six, six}), Error);
  EXPECT_THROW(launch_on(1, SplitPairs{pairs, pairs, 2, 0, six, six}), Error);
}

TEST(ComposeIndices, GoesThroughBothMaps) {
  const Numbers map{3, -1, 0, 2, -5}, through{10, 11, -1, 13};
  Numbers y(5, -7);
  launch_on(1, ComposeIndices{map, through, y});
  EXPECT_EQ(y, (Numbers{13, -1, 10, -1, -1}));
  Numbers nothing;
  launch_on(1, ComposeIndices{nothing, through, nothing});
  const Numbers beyond{4};
  EXPECT_THROW(launch_on(1, ComposeIndices{beyond, through, std::span(y).first(1)}), Error);
}

TEST(LayOutSegments, PutsOneSegmentBehindAnother) {
  Numbers rows, widths, expected{0};
  for (std::int64_t e = 0; e < 300; ++e) {
    rows.push_back(e % 5 == 0 ? 0 : 7 * e);
    widths.push_back(1 + e % 13);
  }
  const SegmentTable table(CpuStream(1), rows);
  for (std::size_t e = 0; e < rows.size(); ++e) {
    expected.push_back(expected.back() + (rows[e] + 31) / 32 * 32 * widths[e]);
  }
  Numbers offset(rows.size() + 1, -7);
  launch_on(1, LayOutSegments{table.view(), widths, offset});
  EXPECT_EQ(offset, expected);
}

}  // namespace
}  // namespace lyceum
