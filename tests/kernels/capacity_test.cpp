#include "kernels/capacity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "core/random.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

struct CapacityCase {
  std::int64_t sequences, seq_len, k, experts;
  double factor;
};
std::ostream& operator<<(std::ostream& out, const CapacityCase& c) {
  return out << c.sequences << " x " << c.seq_len << ", top " << c.k << " of " << c.experts << ", factor " << c.factor;
}

const std::vector<CapacityCase> capacity_cases{{1, 1, 1, 1, 1},       {1, 1, 1, 1, 0.1},  {3, 7, 2, 5, 1},
                                               {2, 130, 6, 64, 1.25}, {2, 33, 3, 7, 0.5}, {2, 40, 4, 300, 1},
                                               {1, 12, 3, 4, 1e-9},   {1, 12, 3, 4, 1e9}};

/// Returns k distinct experts per token, with low indices more often. With `holes`, some choices are −1.
Grid<std::int32_t> choices_of(const CapacityCase& c, bool holes) {
  Grid<std::int32_t> index(c.sequences * c.seq_len, c.k, 1);
  const Philox random(3, "capacity");
  for (std::int64_t t = 0; t < index.rows; ++t) {
    const double r = random.normal(static_cast<std::uint64_t>(t));
    const auto first = static_cast<std::int64_t>(r * r * 2);
    for (std::int64_t j = 0; j < c.k; ++j) {
      index(t, j) = holes && (t + j) % 4 == 0 ? -1 : static_cast<std::int32_t>((first + j) % c.experts);
    }
  }
  return index;
}

/// Returns the choices that are not dropped, by the definition: visits the choices of a sequence in the order of their
/// precedence and counts those of each expert. `dropped` gets the number of dropped choices, plus 5.
Grid<std::int32_t> naively_kept(const CapacityCase& c, const Grid<std::int32_t>& index, double k,
                                std::vector<double>& dropped) {
  Grid<std::int32_t> kept(index.rows, c.k);
  dropped.assign(static_cast<std::size_t>(c.k * c.experts), 5);
  const double capacity = std::ceil(c.factor * k * static_cast<double>(c.seq_len) / static_cast<double>(c.experts));
  for (std::int64_t s = 0; s < c.sequences; ++s) {
    std::vector<double> taken(static_cast<std::size_t>(c.experts), 0);
    for (std::int64_t j = 0; j < c.k; ++j) {
      for (std::int64_t t = s * c.seq_len; t < (s + 1) * c.seq_len; ++t) {
        const auto e = static_cast<std::int32_t>(index.at(t, j));
        kept(t, j) = e;
        if (e < 0 || taken[static_cast<std::size_t>(e)]++ < capacity) continue;
        kept(t, j) = -1;
        ++dropped[static_cast<std::size_t>(j * c.experts + e)];
      }
    }
  }
  return kept;
}

/// The tokens are divided into spans that end anywhere in a sequence; some are empty. Each span is processed
/// separately, as by a rank.
TEST(DropChoices, DropsTheLastChoicesForAnyDivisionOfTheTokens) {
  for (const CapacityCase& c : capacity_cases) {
    for (const auto& [spans, holes, stated_k] : {std::tuple{1, false, 0.0}, {3, true, 0.0}, {4, false, 1.0}}) {
      SCOPED_TRACE(c);
      const Grid<std::int32_t> index = choices_of(c, holes);
      const std::vector<double> choices(stated_k > 0 ? 1 : 0, stated_k);
      std::vector<double> left_out;
      const Grid<std::int32_t> expected =
          naively_kept(c, index, stated_k > 0 ? stated_k : static_cast<double>(c.k), left_out);
      const auto begin = [&, spans = spans](std::int64_t span) {
        return span == 1 && spans > 1 ? 0 : index.rows * span / spans;
      };
      Grid<std::int64_t> counts(spans * c.sequences * c.k, c.experts, 2);
      Grid<std::int32_t> kept(index.rows, c.k, 3);
      Grid<std::int64_t> dropped(c.k, c.experts, 1);
      for (std::int64_t j = 0; j < c.k; ++j) {
        for (std::int64_t e = 0; e < c.experts; ++e) dropped(j, e) = 5;
      }
      for (std::int64_t span = 0; span < spans; ++span) {
        launch_on(1, CountChoices{.index = index.matrix().rows_from(begin(span), begin(span + 1) - begin(span)),
                                  .seq_len = c.seq_len,
                                  .first = begin(span),
                                  .counts = counts.matrix().rows_from(span * c.sequences * c.k, c.sequences * c.k)});
      }
      for (std::int64_t span = 0; span < spans; ++span) {
        const std::int64_t count = begin(span + 1) - begin(span);
        launch_on(1, DropChoices{.index = index.matrix().rows_from(begin(span), count),
                                 .counts = counts.matrix(),
                                 .ranks = spans,
                                 .rank = span,
                                 .seq_len = c.seq_len,
                                 .first = begin(span),
                                 .factor = c.factor,
                                 .choices = choices,
                                 .kept = kept.matrix().rows_from(begin(span), count),
                                 .dropped = dropped.matrix()});
      }
      EXPECT_EQ(kept.flat(), expected.flat());
      EXPECT_EQ(dropped.flat(), left_out);
      EXPECT_TRUE(kept.gaps_untouched() && counts.gaps_untouched() && dropped.gaps_untouched());
    }
  }
}

TEST(DropChoices, RefusesWhatDoesNotFit) {
  auto index = Grid<std::int32_t>::zeros(4, 2);
  auto counts = Grid<std::int64_t>::zeros(2, 3);
  Grid<std::int32_t> kept(4, 2);
  const auto drop = [&](std::int64_t rank, std::int64_t first) {
    launch_on(1, DropChoices{.index = index.matrix(),
                             .counts = counts.matrix(),
                             .ranks = 1,
                             .rank = rank,
                             .seq_len = 4,
                             .first = first,
                             .factor = 1,
                             .kept = kept.matrix(),
                             .dropped = {}});
  };
  EXPECT_NO_THROW(drop(0, 0));
  EXPECT_THROW(drop(1, 0), Error);
  EXPECT_THROW(drop(0, 1), Error);
}

}  // namespace
}  // namespace lyceum
