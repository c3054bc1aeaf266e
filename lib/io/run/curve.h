#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace lyceum {

/// The value of a metric at one step, with the positions on the other axes of a page.
struct CurvePoint {
  std::int64_t step = 0;
  double tokens = 0;   // trained on since step 0; NaN if unknown
  double seconds = 0;  // sum of the durations of steps; NaN if unknown
  double value = 0;
};

/// A metric over a run in bounded memory. The steps are divided into equal buckets; of each bucket it keeps the first,
/// lowest, highest and last point, a point that is not finite, and the mean of the finite values.
class RunCurve {
 public:
  /// The curve of the steps [first, last].
  RunCurve(std::int64_t first, std::int64_t last) : first_(first), last_(last) {}

  /// Adds a point. Points must be added by ascending step.
  void add(const CurvePoint& point);

  /// Returns the points that are kept, at most `most_buckets` · 5, by ascending step.
  std::vector<CurvePoint> points() const;
  /// Returns one point per bucket that has any, with the mean of its finite values (NaN if it has none) at the position
  /// of its last point.
  std::vector<CurvePoint> means() const;
  bool empty() const { return buckets_.empty(); }
  /// True if a bucket has several points, so that means() differs from points().
  bool thinned() const;

  static constexpr std::int64_t most_buckets = 300;

 private:
  struct Bucket {
    std::int64_t index = 0, count = 0, finite = 0;
    double sum = 0;
    CurvePoint first, last;
    std::optional<CurvePoint> lowest = {}, highest = {}, not_finite = {};
  };
  std::int64_t first_, last_;
  std::vector<Bucket> buckets_;
};

/// The median of positive numbers in bounded memory: a histogram whose bins are 0.5 % wide.
class ApproximateMedian {
 public:
  /// Adds a number. Ignores numbers that are not positive or not finite.
  void add(double value);
  /// Returns the median within 0.25 %, of an even count of numbers the lower one of the middle two; nothing if there
  /// are no numbers.
  std::optional<double> value() const;

 private:
  std::map<int, std::int64_t> counts_;  // by bin
  std::int64_t count_ = 0;
};

/// The mean of the finite values that were added.
class FiniteMean {
 public:
  void add(double value);
  /// Returns NaN if only values that are not finite were added, and nothing if none were.
  std::optional<double> value() const;

 private:
  double sum_ = 0;
  std::int64_t finite_ = 0, count_ = 0;
};

}  // namespace lyceum
