// Measures the bandwidth of kernels with little arithmetic per element, and its ratio to that of a stream triad in the
// same run:
//   bench_elementwise [threads]
// Rows have 512 columns, as in DeepSeekMoE-small, unless the table states other extents. Each call uses other buffers
// than the one before, so that no operand is still in a cache. Bytes count every operand once.
#include "kernels/elementwise.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>

#include "core/device_table.h"
#include "core/random.h"
#include "kernels/activation.h"
#include "kernels/adamw.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/norms.h"
#include "kernels/permute.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/router.h"
#include "kernels/router_backward.h"
#include "timing.h"

namespace lyceum {
namespace {

constexpr std::int64_t rows = 8192, cols = 512, heads_dim = 64, seq_len = 512, vocab = 8192, experts = 64, top_k = 7;
constexpr std::int64_t elements = rows * cols;
constexpr std::size_t sets = 3;
using Tensors = std::vector<Tensor>;  // one tensor per set

/// Prints one line per kernel.
class Table {
 public:
  explicit Table(const Stream& stream) : stream_(stream) {
    std::printf("%-28s %-5s %10s %8s %9s %7s\n", "kernel", "type", "us", "GB/s", "of triad", "spread");
  }
  const Stream& stream() const { return stream_; }

  /// Measures work(set) and prints a line. `bytes` are moved by one call. The first kernel added must be the triad.
  void add(const char* name, DType type, double bytes, const std::function<void(std::size_t)>& work) {
    const Timing timing = measure([&](std::size_t round) { work(round % sets); });
    const double rate = bytes / timing.median * 1e-9;
    if (triad_ == 0) triad_ = rate;
    std::printf("%-28s %-5s %10.1f %8.2f %8.0f%% %6.0f%%\n", name, std::string(name_of(type)).c_str(),
                timing.median * 1e6, rate, 100 * rate / triad_, 100 * timing.spread);
  }

 private:
  Stream stream_;
  double triad_ = 0;  // GB/s of the first line
};

template <class T>
Tensor random_tensor(const Stream& stream, const Shape& shape, std::string_view purpose) {
  Tensor values = Tensor::empty(stream, DType::f32, shape);
  fill_normal(values.span<float>(), 1, Philox(1, purpose), 0);
  Tensor tensor = Tensor::empty(stream, dtype_of<T>, shape);
  launch(stream, Cast<float, T>{values.span<const float>(), tensor.span<T>()});
  return tensor;
}

template <class T>
Tensors rotating(const Stream& stream, const Shape& shape) {
  Tensors tensors;
  for (std::size_t set = 0; set < sets; ++set) {
    tensors.push_back(random_tensor<T>(stream, shape, std::to_string(set)));
  }
  return tensors;
}

std::vector<std::int32_t> random_indices(std::int64_t count, std::int64_t bound) {
  std::vector<std::int32_t> indices(static_cast<std::size_t>(count));
  const Philox random(2, "indices");
  for (std::size_t i = 0; i < indices.size(); ++i) {
    indices[i] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(bound), i));
  }
  return indices;
}

void triad(Table& table, const CpuStream& stream) {
  const Tensors a = rotating<float>(table.stream(), {elements}), b = rotating<float>(table.stream(), {elements}),
                c = rotating<float>(table.stream(), {elements});
  table.add("triad a = b + s c", DType::f32, 12.0 * elements, [&](std::size_t set) {
    float* to = a[set].data<float>();
    const float* from = b[set].data<float>();
    const float* scaled = c[set].data<float>();
    parallel_for(stream, elements, elements_per_thread, [&](std::int64_t first, std::int64_t last) {
#pragma omp simd
      for (std::int64_t i = first; i < last; ++i) to[i] = from[i] + 3.0f * scaled[i];
    });
  });
}

template <class T>
void norm_and_rope(Table& table) {
  using A = Accumulator<T>;
  const Stream& stream = table.stream();
  const Tensors x = rotating<T>(stream, {rows, cols}), y = rotating<T>(stream, {rows, cols}),
                dx = rotating<T>(stream, {rows, cols});
  const Tensor weight = random_tensor<T>(stream, {cols}, "weight"), d_weight = random_tensor<A>(stream, {cols}, "d"),
               inverse = random_tensor<A>(stream, {rows}, "inverse"),
               angles = Tensor::empty(stream, dtype_of<A>, {seq_len, heads_dim});
  launch(stream, RopeTable<A>{angles.matrix<A>(), 10000});
  constexpr double size = sizeof(T) * static_cast<double>(elements);
  const DType type = dtype_of<T>;
  table.add("RMSNorm forward", type, 2 * size, [&](std::size_t s) {
    launch(stream, RmsNormForward<T>{x[s].matrix<const T>(), weight.span<const T>(), y[s].matrix<T>(),
                                     inverse.span<A>(), 1e-6});
  });
  table.add("RMSNorm backward", type, 3 * size, [&](std::size_t s) {
    launch(stream, RmsNormBackward<T>{x[s].matrix<const T>(), y[s].matrix<const T>(), weight.span<const T>(),
                                      inverse.span<const A>(), dx[s].matrix<T>()});
  });
  table.add("RMSNorm weight gradient", type, 2 * size, [&](std::size_t s) {
    launch(stream, RmsNormWeightGrad<T>{x[s].matrix<const T>(), y[s].matrix<const T>(), inverse.span<const A>(),
                                        d_weight.span<A>()});
  });
  table.add("RoPE", type, 2 * size, [&](std::size_t s) {
    launch(stream, Rope<T>{x[s].matrix<T>(), angles.matrix<const A>(), seq_len});
  });
  table.add("add", type, 3 * size, [&](std::size_t s) {
    launch(stream, Add<T>{x[s].span<const T>(), y[s].span<const T>(), dx[s].span<T>()});
  });
  table.add("scale", type, 2 * size, [&](std::size_t s) {
    launch(stream, Scale<T>{x[s].span<const T>(), dx[s].span<T>(), 0.5});
  });
}

template <class T>
void activation(Table& table, Activation kind, const std::string& name) {
  const Stream& stream = table.stream();
  const std::int64_t given = inputs_of(kind) * cols;
  const Tensors x = rotating<T>(stream, {rows, given}), dx = rotating<T>(stream, {rows, given}),
                y = rotating<T>(stream, {rows, cols}), dy = rotating<T>(stream, {rows, cols});
  const SegmentTable segments(stream, std::vector<std::int64_t>(16, rows / 16));
  const SegmentLayout wide(stream, segments, std::vector<std::int64_t>(16, given)),
      narrow(stream, segments, std::vector<std::int64_t>(16, cols));
  const double size = sizeof(T) * static_cast<double>(elements), in = static_cast<double>(inputs_of(kind));
  table.add((name + " forward").c_str(), dtype_of<T>, (in + 1) * size, [&](std::size_t s) {
    launch(stream,
           ActivationForward<T>{kind, segments.view(), wide.over(x[s].data<const T>()), narrow.over(y[s].data<T>())});
  });
  table.add((name + " backward").c_str(), dtype_of<T>, (2 * in + 2) * size, [&](std::size_t s) {
    launch(stream, ActivationBackward<T>{kind, segments.view(), wide.over(x[s].data<const T>()),
                                         narrow.over(dy[s].data<const T>()), wide.over(dx[s].data<T>()),
                                         narrow.over(y[s].data<T>())});
  });
}

template <class T>
void embedding_and_loss(Table& table) {
  using A = Accumulator<T>;
  const Stream& stream = table.stream();
  const Tensors x = rotating<T>(stream, {rows, cols}), y = rotating<T>(stream, {rows, cols});
  const Tensor words = random_tensor<T>(stream, {vocab, cols}, "table"),
               d_words = random_tensor<A>(stream, {vocab, cols}, "d_table"),
               loss = random_tensor<A>(stream, {rows}, "loss"), sums = random_tensor<A>(stream, {rows}, "sums");
  const std::vector<std::int32_t> tokens = random_indices(rows, vocab);
  constexpr double size = sizeof(T) * static_cast<double>(elements);
  table.add("embedding forward", dtype_of<T>, 2 * size, [&](std::size_t s) {
    launch(stream, EmbeddingForward<T>{tokens, words.matrix<const T>(), y[s].matrix<T>()});
  });
  table.add("embedding weight gradient", dtype_of<T>, size + 2.0 * sizeof(A) * elements, [&](std::size_t s) {
    launch(stream, EmbeddingWeightGrad<T>{tokens, x[s].matrix<const T>(), d_words.matrix<A>()});
  });
  const std::int64_t positions = elements / vocab;
  const auto count = static_cast<std::size_t>(positions);
  const std::span<const std::int32_t> targets(tokens.data(), count);
  const auto logits = [&](std::size_t s) -> Matrix<const T> {
    return x[s].reshaped({positions, vocab}).matrix<const T>();
  };
  table.add("loss forward [512, 8192]", dtype_of<T>, size, [&](std::size_t s) {
    launch(stream,
           CrossEntropyForward<T>{logits(s), targets, loss.span<A>().first(count), sums.span<A>().first(count)});
  });
  const Tensor factor = Tensor::zeros(stream, dtype_of<A>, {1});
  table.add("loss backward [512, 8192]", dtype_of<T>, 2 * size, [&](std::size_t s) {
    launch(stream, CrossEntropyBackward<T>{logits(s), targets, sums.span<const A>().first(count), factor.span<A>(),
                                           y[s].reshaped({positions, vocab}).matrix<T>()});
  });
}

/// Permutes rows of 8192 / 7 tokens in 7 slots each, so that the slots are [8190, 512].
template <class T>
void permutation(Table& table) {
  using A = Accumulator<T>;
  const Stream& stream = table.stream();
  const std::int64_t tokens = rows / top_k, slots = tokens * top_k;
  const Tensors x = rotating<T>(stream, {slots, cols}), dx = rotating<T>(stream, {slots, cols}),
                y = rotating<T>(stream, {tokens, cols});
  const Tensor gate = random_tensor<A>(stream, {tokens, top_k}, "gate"),
               d_gate = random_tensor<A>(stream, {tokens, top_k}, "d_gate");
  std::vector<std::int64_t> slot_pair, pair_slot(static_cast<std::size_t>(slots));
  const Permutation shuffled(3, "slots", static_cast<std::uint64_t>(slots));
  for (std::size_t s = 0; s < pair_slot.size(); ++s) {
    slot_pair.push_back(static_cast<std::int64_t>(shuffled(s)));
    pair_slot[static_cast<std::size_t>(slot_pair.back())] = static_cast<std::int64_t>(s);
  }
  const double size = static_cast<double>(sizeof(T)) * static_cast<double>(slots * cols), small = size / top_k;
  table.add("gather rows", dtype_of<T>, size + small, [&](std::size_t s) {
    launch(stream, GatherRows<T>{y[s].matrix<const T>(), slot_pair, x[s].matrix<T>(), top_k});
  });
  table.add("combine rows", dtype_of<T>, size + small, [&](std::size_t s) {
    launch(stream, CombineRows<T>{x[s].matrix<const T>(), pair_slot, top_k, gate.matrix<const A>(), y[s].matrix<T>()});
  });
  table.add("combine rows backward", dtype_of<T>, 2 * size + small, [&](std::size_t s) {
    launch(stream, CombineRowsBackward<T>{x[s].matrix<const T>(), y[s].matrix<const T>(), pair_slot, top_k,
                                          gate.matrix<const A>(), dx[s].matrix<T>(), d_gate.matrix<A>()});
  });
}

void router(Table& table) {
  const Stream& stream = table.stream();
  const Tensors x = rotating<float>(stream, {rows, experts}), dx = rotating<float>(stream, {rows, experts});
  const Tensor index = Tensor::empty(stream, DType::i32, {rows, top_k}),
               gates = Tensor::empty(stream, DType::f32, {rows, top_k}),
               norms = Tensor::empty(stream, DType::f32, {rows, 2}),
               load = Tensor::empty(stream, DType::f64, {rows / seq_len, load_width(experts)}),
               counts = Tensor::zeros(stream, DType::i64, {top_k, experts}),
               probability = Tensor::zeros(stream, DType::f64, {experts}),
               begin = Tensor::empty(stream, DType::i64, {experts + 1}),
               slot_pair = Tensor::empty(stream, DType::i64, {rows * top_k}),
               pair_slot = Tensor::empty(stream, DType::i64, {rows * top_k});
  std::vector<std::int32_t> order(experts);
  std::iota(order.begin(), order.end(), 0);
  const auto pairs = static_cast<double>(rows * top_k), logits = static_cast<double>(rows * experts);
  table.add("route, top 7 of [8192, 64]", DType::f32, 4 * logits + 8 * pairs, [&](std::size_t s) {
    launch(stream, RouteTokens<float>{.logits = x[s].matrix<const float>(),
                                      .index = index.matrix<std::int32_t>(),
                                      .gates = gates.matrix<float>(),
                                      .norms = norms.matrix<float>(),
                                      .seq_len = seq_len,
                                      .load = load.matrix<double>(),
                                      .counts = counts.matrix<std::int64_t>(),
                                      .probability = probability.span<double>(),
                                      .entropies = {}});
  });
  table.add("route backward [8192, 64]", DType::f32, 8 * logits + 8 * pairs, [&](std::size_t s) {
    launch(stream, RouteTokensBackward<float>{.logits = x[s].matrix<const float>(),
                                              .norms = norms.matrix<const float>(),
                                              .index = index.matrix<const std::int32_t>(),
                                              .d_gates = gates.matrix<const float>(),
                                              .d_load = load.matrix<const double>(),
                                              .seq_len = seq_len,
                                              .d_logits = dx[s].matrix<float>()});
  });
  table.add("sort by expert [8192, 7]", DType::i32, 20 * pairs, [&](std::size_t) {
    launch(stream, SortByExpert{index.matrix<const std::int32_t>(), order, begin.span<std::int64_t>(),
                                slot_pair.span<std::int64_t>(), pair_slot.span<std::int64_t>()});
  });
}

/// AdamW with weights of type T and moments of type S.
template <class T, class S>
void optimizer(Table& table) {
  const Stream& stream = table.stream();
  const Tensors master = rotating<float>(stream, {elements}), g = rotating<float>(stream, {elements});
  const Tensors m = rotating<S>(stream, {elements});
  Tensors v(sets);
  for (Tensor& squares : v) squares = Tensor::zeros(stream, dtype_of<S>, {elements});
  const Tensors w = rotating<T>(stream, {elements});
  Tensors rows;
  for (std::size_t s = 0; s < sets; ++s) {
    rows.push_back(
        table_of(stream, std::vector<UpdatedTensor<T, AdamW::states, S>>{{.master = master[s].data<float>(),
                                                                          .state = {m[s].data<S>(), v[s].data<S>()},
                                                                          .gradient = g[s].data<float>(),
                                                                          .weight = w[s].data<T>(),
                                                                          .count = elements,
                                                                          .first_block = 0,
                                                                          .first_span = 0,
                                                                          .first_slice = 0,
                                                                          .slices = 1}}));
  }
  const Tensor slices = table_of(stream, std::vector<RoundedSlice>{{.end = elements,
                                                                    .first = 0,
                                                                    .pitch = elements,
                                                                    .origin = 0,
                                                                    .stride = elements,
                                                                    .key = rounding_key(1, "benchmark")}}),
               update = table_of(stream, std::vector<std::int64_t>{1});
  constexpr std::int64_t blocks = flat_blocks_of(elements);
  const Tensor runs = table_of(stream, std::vector<UpdateSpan>{{.end = elements, .weight_decay = 0.1}}),
               places = table_of(stream, std::vector<std::int64_t>{0, blocks}),
               numbers = table_of(stream, std::vector<AdamW::Numbers>{{1e-4, 1e-3, 20}}),
               verdict = table_of(stream, std::vector<StepVerdict>{{.gradient_scale = 1, .skip = 0}}),
               sums = Tensor::zeros(stream, DType::f64, {2 * blocks});
  constexpr auto count = static_cast<double>(elements);
  const char* const name = std::is_same_v<S, float> ? "AdamW" : "AdamW, moments in bf16";
  table.add(name, dtype_of<T>, (3 * 4.0 + 4 * sizeof(S) + sizeof(T)) * count, [&](std::size_t s) {
    launch(stream, UpdateWeights<T, AdamW, S>{
                       .tensors = rows_of<UpdatedTensor<T, AdamW::states, S>>(rows[s]),
                       .spans = rows_of<UpdateSpan>(runs),
                       .blocks = blocks,
                       .rule = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .numbers = rows_of<AdamW::Numbers>(numbers)},
                       .verdict = rows_of<StepVerdict>(verdict),
                       .weight_offsets = rows_of<std::int64_t>(places).first(1),
                       .update_offsets = rows_of<std::int64_t>(places).last(1),
                       .sums = sums.span<double>(),
                       .rounding = {.slices = rows_of<RoundedSlice>(slices), .update = rows_of<std::int64_t>(update)}});
  });
}

void norms_and_casts(Table& table) {
  const Stream& stream = table.stream();
  const Tensors x = rotating<float>(stream, {elements});
  const Tensors y = rotating<bfloat16>(stream, {elements});
  const Tensor sums = Tensor::empty(stream, DType::f64, {flat_blocks_of(elements)});
  const Tensor offset = table_of(stream, std::vector<std::int64_t>{0});
  constexpr auto count = static_cast<double>(elements);
  table.add("sum of squares", DType::f32, 4 * count, [&](std::size_t s) {
    const Tensor row = table_of(stream, std::vector<TensorRow<float>>{{x[s].data<const float>(), elements, 0}});
    launch(stream, SquaresOfTensors<float>{.tensors = rows_of<TensorRow<float>>(row),
                                           .blocks = flat_blocks_of(elements),
                                           .offsets = rows_of<std::int64_t>(offset),
                                           .sums = sums.span<double>()});
  });
  table.add("cast f32 to bf16", DType::bf16, 6 * count, [&](std::size_t s) {
    launch(stream, Cast<float, bfloat16>{x[s].span<const float>(), y[s].span<bfloat16>()});
  });
  table.add("cast bf16 to f32", DType::f32, 6 * count, [&](std::size_t s) {
    launch(stream, Cast<bfloat16, float>{y[s].span<const bfloat16>(), x[s].span<float>()});
  });
}

template <class T>
void all_of_type(Table& table) {
  norm_and_rope<T>(table);
  activation<T>(table, Activation::swiglu, "SwiGLU");
  activation<T>(table, Activation::gelu, "GELU");
  activation<T>(table, Activation::clamped_swiglu, "clamped SwiGLU");
  embedding_and_loss<T>(table);
  permutation<T>(table);
  optimizer<T, float>(table);
  optimizer<T, bfloat16>(table);
}

}  // namespace
}  // namespace lyceum

int main(int argc, char** argv) {
  using namespace lyceum;
  const CpuStream stream(argc > 1 ? std::atoi(argv[1]) : 0);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // show lines at once in a pipe, too
  std::printf("%d threads; [%ld, %ld] unless named otherwise\n", stream.threads(), rows, cols);
  Table table{Stream(stream)};
  triad(table, stream);
  all_of_type<float>(table);
  all_of_type<bfloat16>(table);
  router(table);
  norms_and_casts(table);
}
