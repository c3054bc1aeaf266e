#include "io/files/box.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

namespace lyceum {

Box Box::whole(const Shape& shape) {
  Box box{.offset = shape, .extent = shape};
  for (int axis = 0; axis < shape.rank(); ++axis) box.offset[axis] = 0;
  return box;
}

std::string Box::text() const {
  std::string text = "[";
  for (int axis = 0; axis < extent.rank(); ++axis) {
    if (axis) text += ',';
    text += std::to_string(offset[axis]) + ':' + std::to_string(offset[axis] + extent[axis]);
  }
  return text + "]";
}

namespace {

/// Appends to `out` the boxes of elements [first, end) of a sub-tensor, in row-major order. The sub-tensor has one
/// index in each axis before `axis` (given by `box`) and the whole extent of the others; `first` and `end` count from
/// its first element.
void add_boxes(const Shape& shape, int axis, Box box, std::int64_t first, std::int64_t end, std::vector<Box>& out) {
  if (first >= end) return;
  std::int64_t inner = 1;  // elements per index of the axis
  for (int later = axis + 1; later < shape.rank(); ++later) inner *= shape[later];
  const auto steps = [&](std::int64_t begin, std::int64_t count) {
    Box part = box;
    part.offset[axis] = begin;
    part.extent[axis] = count;
    return part;
  };
  const std::int64_t whole = (first + inner - 1) / inner, whole_end = end / inner;
  if (whole > whole_end) {  // the range is within one index
    const std::int64_t before = whole_end * inner;
    return add_boxes(shape, axis + 1, steps(whole_end, 1), first - before, end - before, out);
  }
  if (first < whole * inner) {
    add_boxes(shape, axis + 1, steps(whole - 1, 1), first - (whole - 1) * inner, inner, out);
  }
  if (whole < whole_end) out.push_back(steps(whole, whole_end - whole));
  if (whole_end * inner < end) add_boxes(shape, axis + 1, steps(whole_end, 1), 0, end - whole_end * inner, out);
}

}  // namespace

std::vector<Box> boxes_of_range(const Shape& shape, std::int64_t first, std::int64_t count) {
  require(first >= 0 && count >= 0 && first + count <= shape.size(), "elements [{}, {}) are not in a tensor {}", first,
          first + count, shape.text());
  std::vector<Box> boxes;
  if (shape.rank() == 0) {
    if (count) boxes.push_back(Box::whole(shape));
  } else {
    add_boxes(shape, 0, Box::whole(shape), first, first + count, boxes);
  }
  return boxes;
}

bool inside(const Box& box, const Shape& shape) {
  if (box.offset.rank() != shape.rank() || box.extent.rank() != shape.rank()) return false;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    // Subtraction cannot overflow, unlike addition: the numbers may come from a damaged file.
    if (box.offset[axis] < 0 || box.extent[axis] < 0 || box.offset[axis] > shape[axis] ||
        box.extent[axis] > shape[axis] - box.offset[axis]) {
      return false;
    }
  }
  return true;
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  Box common = a;
  for (int axis = 0; axis < a.extent.rank(); ++axis) {
    const std::int64_t begin = std::max(a.offset[axis], b.offset[axis]);
    const std::int64_t end = std::min(a.offset[axis] + a.extent[axis], b.offset[axis] + b.extent[axis]);
    if (begin >= end) return std::nullopt;
    common.offset[axis] = begin;
    common.extent[axis] = end - begin;
  }
  return common;
}

std::optional<std::pair<std::size_t, std::size_t>> find_overlap(std::span<const Box> boxes) {
  if (boxes.size() < 2) return std::nullopt;
  int axis = 0;  // the axis along which the boxes begin at most different offsets
  std::size_t most = 0;
  for (int candidate = 0; candidate < boxes[0].extent.rank(); ++candidate) {
    std::set<std::int64_t> begins;
    for (const Box& box : boxes) begins.insert(box.offset[candidate]);
    if (begins.size() > most) {
      most = begins.size();
      axis = candidate;
    }
  }
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return boxes[a].offset[axis] < boxes[b].offset[axis]; });
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Box& box = boxes[order[i]];
    for (std::size_t j = i + 1; j < order.size(); ++j) {
      const Box& next = boxes[order[j]];
      if (next.offset[axis] >= box.offset[axis] + box.extent[axis]) break;
      if (intersection(box, next)) return std::minmax(order[i], order[j]);
    }
  }
  return std::nullopt;
}

}  // namespace lyceum
