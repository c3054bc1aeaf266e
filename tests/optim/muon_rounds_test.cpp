#include "optim/muon_rounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/round_up.h"
#include "optim/newton_schulz.h"
#include "parallel/data/flat_range.h"
#include "support/grid.h"

namespace lyceum {
namespace {

/// Shapes of the matrices of two units, with vectors before the first and the third matrix.
constexpr std::int64_t shapes[][2] = {{30, 100}, {30, 100}, {7, 64}, {513, 3}, {1, 1}, {90, 90}, {30, 100}, {5, 2000}};
constexpr std::size_t second_unit = 4;  // first matrix of it

/// Divides the matrices among sharers, by rows or by columns, with padding after rows of the latter.
MuonLayout layout_of(const MatrixSharing& sharing) {
  MuonLayout layout{.sharing = sharing, .rank = 0, .slices = {}, .unit_sizes = {}, .unit_of = {}};
  for (int sharer = 0; sharer < sharing.sharers; ++sharer) {
    std::vector<MatrixSlice>& slices = layout.slices.emplace_back();
    std::vector<std::int64_t>& sizes = layout.unit_sizes.emplace_back();
    std::int64_t at = 40;
    double before = 0;
    const auto end_unit = [&] {
      sizes.push_back(padded_for_ranks(at, sharing.copies));
      at = 0;
    };
    for (std::size_t m = 0; m < std::size(shapes); ++m) {
      if (m == second_unit) end_unit();
      const auto& [rows, cols] = shapes[m];
      const bool by_rows = m % 2 == 0;
      const Range part = part_of(by_rows ? rows : cols, sharer, sharing.sharers);
      MatrixSlice slice{.rows = rows,
                        .cols = cols,
                        .first = at,
                        .pitch = by_rows ? cols : round_up<std::int64_t>(part.count, 8),
                        .row = by_rows ? part.first : 0,
                        .col = by_rows ? 0 : part.first,
                        .own_rows = by_rows ? part.count : rows,
                        .own_cols = by_rows ? cols : part.count,
                        .place = (before + 0.5) / std::size(shapes)};
      ++before;
      at = round_up<std::int64_t>(at + slice.own_rows * slice.pitch, 32) + (m == 2 ? 96 : 0);
      slices.push_back(slice);
      if (sharer == 0) layout.unit_of.push_back(sizes.size());
    }
    end_unit();
  }
  return layout;
}

std::vector<MatrixSharing> sharings() {
  std::vector<MatrixSharing> all;
  for (const int copies : {1, 2, 3, 8}) {
    for (const int sharers : {1, 2, 3}) {
      all.push_back({copies, sharers, false});
      if (copies > 1) all.push_back({copies, sharers, true});
    }
  }
  return all;
}

/// All ranks of a group in one process, with the gradients of their units. Element values are whole numbers.
struct Group {
  MuonLayout layout;
  std::vector<int> owners;
  std::vector<std::vector<MuonRound>> rounds;               // [ranks]
  std::vector<std::vector<std::vector<double>>> gradients;  // [ranks][units]

  Group(const MatrixSharing& sharing, std::int64_t limit) : layout(layout_of(sharing)) {
    std::vector<double> loads(static_cast<std::size_t>(sharing.ranks()));
    owners = choose_owners(layout.slices.front(), sharing, loads);
    for (int rank = 0; rank < sharing.ranks(); ++rank) {
      layout.rank = rank;
      rounds.push_back(muon_rounds(layout, owners, DType::f32, limit));
      std::vector<std::vector<double>>& own = gradients.emplace_back();
      for (const std::int64_t size : layout.unit_sizes[static_cast<std::size_t>(sharing.sharer_of(rank))])
        own.emplace_back(static_cast<std::size_t>(size), -1.0);
    }
    for (std::size_t m = 0; m < owners.size(); ++m) {
      for_each(m, [](double& element, double global) { element = global; });
    }
  }
  /// Calls f(gradient, value) for every element that a rank holds of matrix m and updates; `value` depends on the
  /// element of the matrix only.
  template <class F>
  void for_each(std::size_t m, const F& f) {
    for (int rank = 0; rank < layout.sharing.ranks(); ++rank) {
      for (const HeldRows& held : layout.held_by(rank, m)) {
        for (std::int64_t r = 0; r < held.rows; ++r) {
          for (std::int64_t c = 0; c < held.cols; ++c) {
            const auto value = static_cast<double>(m) * 1e6 +
                               static_cast<double>((held.row + r) * layout.slices.front()[m].cols + held.col + c);
            f(gradients[static_cast<std::size_t>(rank)][layout.unit_of[m]]
                       [static_cast<std::size_t>(held.first + r * held.stride + c)],
              value);
          }
        }
      }
    }
  }
};

using Buffers = std::vector<std::vector<double>>;  // [ranks]

void pack(const std::vector<ShareBox>& boxes, const std::vector<std::vector<double>>& from, std::vector<double>& to) {
  for (const ShareBox& box : boxes) {
    for (std::int64_t r = 0; r < box.held.rows; ++r) {
      for (std::int64_t c = 0; c < box.held.cols; ++c) {
        to.at(static_cast<std::size_t>(box.first + r * box.stride + c)) =
            from[box.unit].at(static_cast<std::size_t>(box.held.first + r * box.held.stride + c));
      }
    }
  }
}
void unpack(const std::vector<ShareBox>& boxes, const std::vector<double>& from, std::vector<std::vector<double>>& to) {
  for (const ShareBox& box : boxes) {
    for (std::int64_t r = 0; r < box.held.rows; ++r) {
      for (std::int64_t c = 0; c < box.held.cols; ++c) {
        to[box.unit].at(static_cast<std::size_t>(box.held.first + r * box.held.stride + c)) =
            from.at(static_cast<std::size_t>(box.first + r * box.stride + c));
      }
    }
  }
}
void move(const std::vector<MovedBox>& boxes, const std::vector<double>& from, std::vector<double>& to) {
  for (const MovedBox& box : boxes) {
    for (std::int64_t r = 0; r < box.rows; ++r) {
      for (std::int64_t c = 0; c < box.cols; ++c) {
        to.at(static_cast<std::size_t>(box.to + r * box.to_stride + c)) =
            from.at(static_cast<std::size_t>(box.from + r * box.from_stride + c));
      }
    }
  }
}
std::int64_t sum(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}
constexpr double unset = -2;
std::vector<double> buffer(std::int64_t size) { return std::vector<double>(static_cast<std::size_t>(size), unset); }

/// An all-to-all between buffers; counts as MuonRound has them.
Buffers all_to_all(const Buffers& sent, const std::vector<std::vector<std::int64_t>>& send,
                   const std::vector<std::vector<std::int64_t>>& receive) {
  Buffers received;
  for (std::size_t to = 0; to < sent.size(); ++to) {
    std::vector<double>& own = received.emplace_back();
    for (std::size_t from = 0; from < sent.size(); ++from) {
      EXPECT_EQ(send[from][to], receive[to][from]) << from << " to " << to;
      const auto first =
          std::accumulate(send[from].begin(), send[from].begin() + static_cast<std::ptrdiff_t>(to), std::int64_t{0});
      own.insert(own.end(), sent[from].begin() + first, sent[from].begin() + first + send[from][to]);
    }
  }
  return received;
}

/// Executes all rounds, in which each owner adds `change` to all elements of its matrices. Sets `exchanged` to the
/// elements that each rank has sent to others, apart from gathers.
void execute(Group& group, double change, std::vector<double>& exchanged) {
  const MatrixSharing& sharing = group.layout.sharing;
  const auto ranks = static_cast<std::size_t>(sharing.ranks());
  exchanged.assign(ranks, 0);
  for (std::size_t k = 0; k < group.rounds.front().size(); ++k) {
    Buffers matrices, sent;
    std::vector<std::vector<std::int64_t>> send, receive, back, take;
    for (std::size_t r = 0; r < ranks; ++r) {
      const MuonRound& round = group.rounds[r][k];
      pack(round.own, group.gradients[r], matrices.emplace_back(buffer(round.elements)));
      pack(round.sent_boxes, group.gradients[r], sent.emplace_back(buffer(sum(round.sent))));
      send.push_back(round.sent), receive.push_back(round.received), back.push_back(round.returned),
          take.push_back(round.taken);
      exchanged[r] += static_cast<double>(sum(round.sent) + sum(round.returned));
    }
    const Buffers received = all_to_all(sent, send, receive);
    Buffers returned;
    for (std::size_t r = 0; r < ranks; ++r) {
      const MuonRound& round = group.rounds[r][k];
      move(round.received_boxes, received[r], matrices[r]);
      for (const MuonRound::Batch& batch : round.batches) {
        const std::int64_t rows = padded(batch.rows), cols = padded(batch.cols);
        ASSERT_LE(batch.first + batch.count * rows * cols, round.elements);
        for (std::int64_t i = 0; i < batch.count * rows; ++i) {  // whole matrices, row by row
          const std::int64_t row = i % rows;
          for (std::int64_t col = 0; col < cols; ++col) {
            double& value = matrices[r][static_cast<std::size_t>(batch.first + i * cols + col)];
            if (row >= batch.rows || col >= batch.cols) {
              ASSERT_EQ(value, unset) << "padding";
              continue;
            }
            ASSERT_EQ(std::fmod(value, 1e6), static_cast<double>(row * batch.cols + col))
                << batch.rows << " x " << batch.cols;
            const auto m = static_cast<std::size_t>(value / 1e6);
            ASSERT_EQ(group.owners[m], static_cast<int>(r));
            ASSERT_EQ(group.layout.slices.front()[m].rows, batch.rows);
            value += change;
          }
        }
      }
      unpack(round.own, matrices[r], group.gradients[r]);
      move(round.returned_boxes, matrices[r], returned.emplace_back(buffer(sum(round.returned))));
    }
    if (sharing.gathers()) {
      std::vector<double> all;
      for (const std::vector<double>& own : matrices) all.insert(all.end(), own.begin(), own.end());
      for (std::size_t r = 0; r < ranks; ++r) {
        EXPECT_EQ(sum(take[r]), std::ssize(all));
        unpack(group.rounds[r][k].taken_boxes, all, group.gradients[r]);
      }
    } else {
      const Buffers taken = all_to_all(returned, back, take);
      for (std::size_t r = 0; r < ranks; ++r) unpack(group.rounds[r][k].taken_boxes, taken[r], group.gradients[r]);
    }
  }
}

TEST(MuonRounds, BringEveryElementToItsOwnerAndBack) {
  for (const MatrixSharing& sharing : sharings()) {
    for (const std::int64_t limit : {std::int64_t{1}, std::int64_t{200'000}, muon_round_bytes}) {
      SCOPED_TRACE(testing::Message() << sharing.copies << " copies, " << sharing.sharers << " sharers, sharded "
                                      << sharing.sharded << ", limit " << limit);
      Group group(sharing, limit);
      for (const auto& rounds : group.rounds) EXPECT_EQ(rounds.size(), group.rounds.front().size());
      if (limit == muon_round_bytes) {
        EXPECT_EQ(group.rounds.front().size(), 1u);
      }
      std::vector<double> exchanged;
      ASSERT_NO_FATAL_FAILURE(execute(group, 0.5, exchanged));
      for (std::size_t m = 0; m < group.owners.size(); ++m) {
        group.for_each(m, [&](double& element, double value) {
          EXPECT_EQ(element, value + 0.5);
          element = -1;
        });
      }
      for (const auto& units : group.gradients) {  // nothing else was written
        for (const auto& unit : units) EXPECT_EQ(std::ranges::count(unit, -1.0), std::ssize(unit));
      }
    }
  }
}

/// The loads that a plan uses are those of the rounds, although it knows the slices of one sharer only.
TEST(MuonRounds, TakeWhatTheirLoadSays) {
  for (const MatrixSharing& sharing : sharings()) {
    for (const std::int64_t limit : {std::int64_t{200'000}, muon_round_bytes}) {
      Group group(sharing, limit);
      std::vector<double> exchanged;
      ASSERT_NO_FATAL_FAILURE(execute(group, 0, exchanged));
      double flops = 0;
      for (int rank = 0; rank < sharing.ranks(); ++rank) {
        const auto r = static_cast<std::size_t>(rank), own = static_cast<std::size_t>(sharing.sharer_of(rank));
        MuonLayout known = group.layout;
        known.rank = rank;
        for (std::size_t s = 0; s < known.slices.size(); ++s) {
          if (s != own) known.slices[s].clear(), known.unit_sizes[s].clear();
        }
        const MuonLoad load = muon_load(known, group.owners, DType::f32, limit);
        EXPECT_EQ(load.exchanged, exchanged[r]);
        EXPECT_EQ(load.rounds, static_cast<double>(group.rounds[r].size()));
        flops += load.flops;
        double gathered = 0, peak = 0;
        for (const MuonRound& round : group.rounds[r]) {
          gathered += sharing.gathers() ? static_cast<double>(round.elements) : 0;
          std::int64_t products = 0;
          for (const auto& batch : round.batches) products = std::max(products, product_bytes(batch, DType::f32));
          const std::int64_t messages =
              4 * std::max(sum(round.sent) + sum(round.received), sum(round.returned) + sum(round.taken));
          peak = std::max(peak, static_cast<double>(4 * round.elements + std::max(products, messages)));
        }
        EXPECT_EQ(load.gathered, gathered);
        EXPECT_EQ(load.peak_bytes, peak);
      }
      double all = 0;
      for (const auto& [rows, cols] : shapes) all += newton_schulz_flops(rows, cols);
      EXPECT_NEAR(flops, all, 1e-6 * all);
    }
  }
}

MatrixSlice whole(std::int64_t rows, std::int64_t cols, double place) {
  return {rows, cols, 0, cols, 0, 0, rows, cols, place};
}

TEST(ChooseOwners, BalancesFlopsAndPrefersRanksThatHoldTheMatrix) {
  std::vector<MatrixSlice> experts;
  for (int e = 0; e < 64; ++e) experts.push_back(whole(64, 256, (e + 0.5) / 64));
  std::vector<double> loads(8);
  const std::vector<int> owners = choose_owners(experts, {.copies = 8, .sharers = 1, .sharded = true}, loads);
  for (std::size_t e = 0; e < owners.size(); ++e) EXPECT_EQ(owners[e], static_cast<int>(e) / 8);
  EXPECT_EQ(std::ranges::count(loads, loads.front()), 8);
  // One large matrix: its owner gets no other, although some are in its memory.
  std::vector<MatrixSlice> mixed{whole(512, 512, 0.1)};
  for (int m = 0; m < 6; ++m) mixed.push_back(whole(64, 64, 0.02 + 0.05 * m));
  std::vector<double> other(3);
  const std::vector<int> uneven = choose_owners(mixed, {.copies = 3, .sharers = 1, .sharded = true}, other);
  EXPECT_EQ(std::ranges::count(uneven, uneven.front()), 1);
  EXPECT_EQ(other[1], other[2]);
}

TEST(ChooseOwners, CountsEarlierLoads) {
  std::vector<double> loads{1e12, 0, 0};
  const std::vector<MatrixSlice> matrices(4, whole(32, 32, 0.1));
  for (const bool sharded : {false, true}) {
    for (const int owner : choose_owners(matrices, {.copies = 3, .sharers = 1, .sharded = sharded}, loads)) {
      EXPECT_NE(owner, 0);
    }
  }
}

TEST(HeldRows, LeavesOutPaddingAndOtherElements) {
  const MatrixSlice slice{
      .rows = 6, .cols = 20, .first = 100, .pitch = 8, .row = 2, .col = 5, .own_rows = 4, .own_cols = 6, .place = 0};
  const std::vector<HeldRows> all = held_rows(slice, {0, 1000});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].first, 100);
  EXPECT_EQ(all[0].stride, 8);
  EXPECT_EQ(all[0].rows, 4);
  EXPECT_EQ(all[0].cols, 6);
  const std::vector<HeldRows> part = held_rows(slice, {105, 13});  // one element of row 0, row 1, two of row 2
  ASSERT_EQ(part.size(), 3u);
  EXPECT_EQ(part[0].col, 10);
  EXPECT_EQ(part[0].cols, 1);
  EXPECT_EQ(part[1].cols, 6);
  EXPECT_EQ(part[2].row, 4);
  EXPECT_EQ(part[2].cols, 2);
  EXPECT_TRUE(held_rows(slice, {106, 2}).empty());  // padding
  EXPECT_TRUE(held_rows(slice, {0, 100}).empty());
}

}  // namespace
}  // namespace lyceum
