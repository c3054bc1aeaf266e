#include "apps/checkpoint_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "apps/output.h"
#include "core/real_text.h"
#include "io/text/table.h"

namespace lyceum {
namespace {

/// Returns the larger of two numbers that are not negative; NaN if one of them is NaN.
double larger(double a, double b) {
  if (std::isnan(a)) return std::abs(a);  // without the sign of NaN
  if (b > a || std::isnan(b)) return std::abs(b);
  return a;
}

void accumulate(TensorDifference& sum, std::span<const float> a, std::span<const float> b) {
  sum.elements += static_cast<std::int64_t>(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i])) {
      ++sum.equal;
      continue;
    }
    const double x = a[i], y = b[i], apart = std::abs(x - y);
    sum.max_absolute = larger(sum.max_absolute, apart);
    if (x != y) sum.max_relative = larger(sum.max_relative, apart / std::max(std::abs(x), std::abs(y)));
  }
}

std::string describe(const TensorDifference& d) {
  return fmt::format("{} of {} equal bit for bit", d.equal, d.elements);
}

}  // namespace

TensorDifference difference(const CheckpointReader& a, const CheckpointReader& b,
                            const CheckpointReader::Entry& entry) {
  constexpr std::int64_t slab = 16 << 20;  // elements
  TensorDifference result;
  const std::int64_t size = entry.shape.size();
  if (size == 0) return result;
  const std::int64_t row = size / entry.shape[0];
  const std::int64_t rows = std::max<std::int64_t>(1, slab / row);
  std::vector<float> left, right;
  for (std::int64_t first = 0; first < entry.shape[0]; first += rows) {
    Box box = Box::whole(entry.shape);
    box.offset[0] = first;
    box.extent[0] = std::min(rows, entry.shape[0] - first);
    left.resize(static_cast<std::size_t>(box.extent.size()));
    right.resize(left.size());
    a.read(entry.name, box, left.data());
    b.read(entry.name, box, right.data());
    accumulate(result, left, right);
  }
  return result;
}

int print_differences(const CheckpointReader& a, const CheckpointReader& b, bool all) {
  for (const CheckpointReader* reader : {&a, &b}) {  // before memory is allocated for missing data
    const std::string problem = reader->problem(CheckpointReader::Check::sizes);
    require_input(problem.empty(), "{}", problem);
  }
  Table table({"tensor", ">max |a-b|", ">max relative", "equal"});
  TensorDifference total;
  std::int64_t same = 0, different = 0, missing = 0;
  for (const CheckpointReader::Entry& entry : a.tensors()) {
    const CheckpointReader::Entry* other = b.find(entry.name);
    if (!other || other->shape != entry.shape) {
      ++missing;
      table.add({entry.name, "", "",
                 other ? fmt::format("shape {} in A, {} in B", entry.shape.text(), other->shape.text()) : "only in A"});
      continue;
    }
    const TensorDifference d = difference(a, b, entry);
    const bool equal = d.equal == d.elements;
    ++(equal ? same : different);
    total.max_absolute = larger(d.max_absolute, total.max_absolute);
    total.max_relative = larger(d.max_relative, total.max_relative);
    if (all || !equal) {
      table.add({entry.name, real_text(d.max_absolute, ".3g"), real_text(d.max_relative, ".3g"), describe(d)});
    }
  }
  for (const CheckpointReader::Entry& entry : b.tensors()) {
    if (a.find(entry.name)) continue;
    ++missing;
    table.add({entry.name, "", "", "only in B"});
  }
  if (all || different + missing > 0) print(table.text());
  if (different + missing == 0) {
    print(fmt::format("{} tensors, equal bit for bit\n", same));
    return 0;
  }
  print(fmt::format("{} tensors equal bit for bit, {} different (max |a-b| {}, max relative {}), {} not comparable\n",
                    same, different, real_text(total.max_absolute, ".3g"), real_text(total.max_relative, ".3g"),
                    missing));
  return 1;
}

}  // namespace lyceum
