#include "convert/transforms/balanced_clusters.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <span>

#include "core/error.h"
#include "kernels/gemm.h"

namespace lyceum {

namespace {

using Groups = std::vector<std::vector<std::int64_t>>;

double squared_distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

class Clusters {
 public:
  Clusters(const CpuStream& stream, Matrix<const float> rows, std::int64_t clusters)
      : stream_(stream), rows_(rows), count_(clusters), centres_(static_cast<std::size_t>(clusters * rows.cols)) {
    const std::int64_t each = rows.rows / clusters;
    for (std::int64_t c = 0; c < clusters; ++c) {
      groups_.emplace_back(static_cast<std::size_t>(each));
      std::iota(groups_.back().begin(), groups_.back().end(), c * each);
    }
    seed();
  }

  Groups run() {
    constexpr int most_rounds = 200;
    for (int round = 0; round < most_rounds; ++round) {
      measure();
      if (!exchange() && round > 0) break;
      move_centres();
    }
    for (std::vector<std::int64_t>& group : groups_) std::ranges::sort(group);
    return std::move(groups_);
  }

 private:
  std::span<const float> row(std::int64_t r) const { return {rows_.row(r), static_cast<std::size_t>(rows_.cols)}; }
  float* centre(std::int64_t c) { return centres_.data() + c * rows_.cols; }

  /// Chooses the initial centres: row 0, then always the row that is farthest from all centres so far.
  void seed() {
    std::vector<double> nearest(static_cast<std::size_t>(rows_.rows), std::numeric_limits<double>::infinity());
    std::int64_t next = 0;
    for (std::int64_t c = 0; c < count_; ++c) {
      std::ranges::copy(row(next), centre(c));
      for (std::int64_t r = 0; r < rows_.rows; ++r) {
        double& distance = nearest[static_cast<std::size_t>(r)];
        distance = std::min(distance, squared_distance(row(r), row(next)));
      }
      next = std::ranges::max_element(nearest) - nearest.begin();
    }
  }

  /// Computes the squared distances of all rows to all centres, without the square of the row, which is the same for
  /// each centre.
  void measure() {
    distances_.resize(static_cast<std::size_t>(rows_.rows * count_));
    const Matrix<const float> centres{centres_.data(), count_, rows_.cols};
    launch(stream_,
           Gemm<float>{.a = rows_, .b = centres, .c = {distances_.data(), rows_.rows, count_}, .transpose_b = true});
    for (std::int64_t c = 0; c < count_; ++c) {
      double square = 0;
      for (std::int64_t i = 0; i < rows_.cols; ++i) square += double{centre(c)[i]} * centre(c)[i];
      for (std::int64_t r = 0; r < rows_.rows; ++r) {
        float& distance = distances_[static_cast<std::size_t>(r * count_ + c)];
        distance = static_cast<float>(square - 2.0 * distance);
      }
    }
  }

  float distance(std::int64_t r, std::int64_t c) const { return distances_[static_cast<std::size_t>(r * count_ + c)]; }

  /// Sorts the rows of group `from` by how much nearer they are to the centre of group `to`, the largest gain first.
  void sort_by_gain(std::int64_t from, std::int64_t to) {
    std::ranges::stable_sort(groups_[static_cast<std::size_t>(from)], std::greater(),
                             [&](std::int64_t r) { return distance(r, from) - distance(r, to); });
  }

  /// Lets every two groups exchange rows as long as a pair of rows gains. Returns true if any rows were exchanged.
  bool exchange() {
    bool any = false;
    for (std::int64_t a = 0; a < count_; ++a) {
      for (std::int64_t b = a + 1; b < count_; ++b) {
        sort_by_gain(a, b);
        sort_by_gain(b, a);
        std::vector<std::int64_t>&in_a = groups_[static_cast<std::size_t>(a)],
        &in_b = groups_[static_cast<std::size_t>(b)];
        for (std::size_t i = 0; i < in_a.size(); ++i) {
          const float stay = distance(in_a[i], a) + distance(in_b[i], b);
          const float go = distance(in_a[i], b) + distance(in_b[i], a);
          if (!(go < stay - tolerance * (std::abs(stay) + std::abs(go)))) break;
          std::swap(in_a[i], in_b[i]);
          any = true;
        }
      }
    }
    return any;
  }

  void move_centres() {
    std::vector<double> sum(static_cast<std::size_t>(rows_.cols));
    for (std::int64_t c = 0; c < count_; ++c) {
      const std::vector<std::int64_t>& group = groups_[static_cast<std::size_t>(c)];
      std::ranges::fill(sum, 0.0);
      for (const std::int64_t r : group) {
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += row(r)[i];
      }
      std::ranges::transform(sum, centre(c), [&](double x) { return static_cast<float>(x / std::ssize(group)); });
    }
  }

  static constexpr float tolerance = 1e-6f;  // relative difference that rounding may cause between equal sums
  const CpuStream& stream_;
  Matrix<const float> rows_;
  std::int64_t count_;
  Groups groups_;
  std::vector<float> centres_, distances_;  // [clusters, cols], [rows, clusters]
};

}  // namespace

std::vector<std::vector<std::int64_t>> balanced_clusters(const CpuStream& stream, Matrix<const float> rows,
                                                         std::int64_t clusters) {
  require(clusters > 0 && rows.rows > 0 && rows.rows % clusters == 0, "{} rows cannot be divided into {} equal groups",
          rows.rows, clusters);
  return Clusters(stream, rows, clusters).run();
}

}  // namespace lyceum
