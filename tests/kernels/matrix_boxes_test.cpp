#include "kernels/matrix_boxes.h"

#include "core/device_table.h"
#include "support/grid.h"
#include "support/tested_stream.h"

namespace lyceum {
namespace {

template <class T>
class MatrixBoxesTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(MatrixBoxesTest, Types);

/// Rows and columns of boxes: part of a block, more than a block, single rows and columns.
constexpr std::int64_t sizes[][2] = {{1, 1}, {3, 700}, {1500, 1}, {1, 2000}, {40, 33}, {2, 1024}};
constexpr std::int64_t memory_gap = 3, buffer_gap = 5;

/// Boxes of these sizes in memory and in a buffer, with gaps after rows and between boxes.
template <class T>
struct Boxes {
  using A = Accumulator<T>;
  Stream stream = tested_stream();
  std::vector<StoredBox<A>> boxes;
  std::vector<std::int64_t> starts;  // of the boxes in memory
  std::int64_t blocks = 0, memory_size = 7, buffer_size = 11;
  Tensor memory, buffer;

  Boxes() {
    for (const auto& [rows, cols] : sizes) {
      starts.push_back(memory_size);
      boxes.push_back({.memory = nullptr,
                       .memory_stride = cols + memory_gap,
                       .first = buffer_size,
                       .stride = cols + buffer_gap,
                       .rows = rows,
                       .cols = cols,
                       .first_block = blocks,
                       .factor = 0.25 * static_cast<double>(1 + boxes.size())});
      memory_size += rows * (cols + memory_gap);
      buffer_size += rows * (cols + buffer_gap);
      blocks += flat_blocks_of(rows * cols);
    }
    memory = table_of(stream, Grid<A>::random(1, memory_size, "memory").values);
    buffer = table_of(stream, Grid<T>::random(1, buffer_size, "buffer").values);
    for (std::size_t b = 0; b < boxes.size(); ++b) boxes[b].memory = reinterpret_cast<A*>(memory.raw()) + starts[b];
  }
  template <class X>
  std::vector<X> read(const Tensor& from) const {
    std::vector<X> values(from.bytes() / sizeof(X));
    copy_to_host(stream, values.data(), from.raw(), from.bytes());
    return values;
  }
  /// Calls f(box, element in memory, element in the buffer) for every element of every box.
  template <class F>
  void for_each(const F& f) const {
    for (std::size_t b = 0; b < boxes.size(); ++b) {
      for (std::int64_t r = 0; r < boxes[b].rows; ++r) {
        for (std::int64_t c = 0; c < boxes[b].cols; ++c) {
          f(boxes[b], static_cast<std::size_t>(starts[b] + r * boxes[b].memory_stride + c),
            static_cast<std::size_t>(boxes[b].first + r * boxes[b].stride + c));
        }
      }
    }
  }
};

TYPED_TEST(MatrixBoxesTest, PacksEveryElementAndNoOther) {
  using T = TypeParam;
  using A = Accumulator<T>;
  Boxes<T> boxes;
  std::vector<T> expected = boxes.template read<T>(boxes.buffer);
  const std::vector<A> memory = boxes.template read<A>(boxes.memory);
  boxes.for_each([&](const auto&, std::size_t m, std::size_t b) { expected[b] = static_cast<T>(memory[m]); });
  const Tensor table = table_of(boxes.stream, boxes.boxes);
  launch(boxes.stream, PackBoxes<T>{rows_of<StoredBox<A>>(table), boxes.blocks, writable_rows_of<T>(boxes.buffer)});
  const std::vector<T> buffer = boxes.template read<T>(boxes.buffer);
  EXPECT_EQ(std::memcmp(buffer.data(), expected.data(), boxes.buffer.bytes()), 0);
}

TYPED_TEST(MatrixBoxesTest, UnpacksEveryElementAndNoOther) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const bool skip : {true, false}) {
    Boxes<T> boxes;
    std::vector<A> expected = boxes.template read<A>(boxes.memory);
    const std::vector<T> buffer = boxes.template read<T>(boxes.buffer);
    boxes.for_each([&](const StoredBox<A>& box, std::size_t m, std::size_t b) {
      if (!skip) expected[m] = static_cast<A>(box.factor) * static_cast<A>(buffer[b]);
    });
    const Tensor table = table_of(boxes.stream, boxes.boxes),
                 verdict = table_of(boxes.stream, std::vector<StepVerdict>{{1, skip ? 1.0 : 0.0}});
    launch(boxes.stream, UnpackBoxes<T>{rows_of<StoredBox<A>>(table), boxes.blocks, rows_of<T>(boxes.buffer),
                                        rows_of<StepVerdict>(verdict)});
    EXPECT_EQ(boxes.template read<A>(boxes.memory), expected);
  }
}

TYPED_TEST(MatrixBoxesTest, MovesEveryElementAndNoOther) {
  using T = TypeParam;
  Boxes<T> boxes;
  const Tensor y = table_of(boxes.stream, Grid<T>::random(1, boxes.memory_size, "y").values);
  std::vector<T> expected = boxes.template read<T>(y);
  const std::vector<T> buffer = boxes.template read<T>(boxes.buffer);
  boxes.for_each([&](const auto&, std::size_t m, std::size_t b) { expected[m] = buffer[b]; });
  std::vector<MovedBox> moved;
  for (std::size_t b = 0; b < boxes.boxes.size(); ++b) {
    const auto& box = boxes.boxes[b];
    moved.push_back({box.first, box.stride, boxes.starts[b], box.memory_stride, box.rows, box.cols, box.first_block});
  }
  const Tensor table = table_of(boxes.stream, moved);
  launch(boxes.stream,
         MoveBoxes<T>{rows_of<MovedBox>(table), boxes.blocks, rows_of<T>(boxes.buffer), writable_rows_of<T>(y)});
  const std::vector<T> after = boxes.template read<T>(y);
  EXPECT_EQ(std::memcmp(after.data(), expected.data(), y.bytes()), 0);
}

TYPED_TEST(MatrixBoxesTest, NothingToCopy) {
  using T = TypeParam;
  const Stream& stream = tested_stream();
  const Tensor verdict = table_of(stream, std::vector<StepVerdict>{{1, 0}});
  launch(stream, PackBoxes<T>{{}, 0, {}});
  launch(stream, UnpackBoxes<T>{{}, 0, {}, rows_of<StepVerdict>(verdict)});
  launch(stream, MoveBoxes<T>{{}, 0, {}, {}});
}

}  // namespace
}  // namespace lyceum
