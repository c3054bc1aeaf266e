#include "io/box.h"

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

bool inside(const Box& box, const Shape& shape) {
  if (box.offset.rank() != shape.rank() || box.extent.rank() != shape.rank()) return false;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    // Subtraction, not addition: the numbers may come from a damaged file.
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
  int axis = 0;  // the one that tells most boxes apart
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
