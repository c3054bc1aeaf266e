// Measures GFLOP/s of causal attention with softmax and with stick-breaking (work above the diagonal is not counted),
// their share of oneDNN's best 512^3 rate of the same precision in the same run, and the ratio of the two. Then
// compares attention in a window of 512 of 8,192 tokens with attention to all of them; the window's rate counts only
// its own work. Then compares attention experts, forward and backward with all their matrices, with dense attention of
// as many FLOPs. Usage: bench_attention [threads]

#include "kernels/attention.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "best_rate.h"
#include "config/check.h"
#include "core/clock.h"
#include "core/random.h"
#include "kernels/rope.h"
#include "kernels/stick_breaking.h"
#include "model/sublayer_spec.h"
#include "parallel/comm/mpi_session.h"
#include "timing.h"

namespace lyceum {
namespace {

template <class T>
Tensor random_tensor(const CpuStream& stream, std::int64_t rows, std::int64_t cols, const char* name) {
  Tensor tensor = Tensor::empty(stream, dtype_of<T>, {rows, cols});
  const Philox random(1, name);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    tensor.data<T>()[i] = T(static_cast<float>(2 * random.uniform(static_cast<std::uint64_t>(i)) - 1));
  }
  return tensor;
}

/// Times of one kind of attention for one shape. `backward` is zero if there are fewer queries than keys.
struct Passes {
  Timing forward, backward;
  double both() const { return forward.median + backward.median; }
};

struct Table {
  const AttentionShape& shape;
  double product;  // FLOPs of one of the matrix products
  double best;

  void line(const std::string& weights, const char* pass, double products, const Timing& timing) const {
    const double flops = products * product;
    fmt::print("  {:>9} {:>7} {:>6} {:>8} {:>4}  {:<8} {:<8} {:>9.3f} {:>5.0f} {:>9.1f} {:>6.0f}%\n", shape.sequences,
               shape.key_len, shape.heads, shape.kv_heads, shape.head_dim, weights, pass, 1e3 * timing.median,
               100 * timing.spread, flops / timing.median * 1e-9, 100 * flops / timing.median / best);
  }
  void lines(const std::string& weights, const Passes& passes) const {
    line(weights, "forward", 2, passes.forward);
    if (passes.backward.median == 0) return;
    line(weights, "backward", 5, passes.backward);
    line(weights, "both", 7, {passes.both(), std::max(passes.forward.spread, passes.backward.spread)});
  }
};

template <class Forward, class Backward>
struct Kind {
  Forward forward;
  Backward backward;

  bool trains() const { return forward.shape.query_len == forward.shape.key_len; }
  Passes measured(const CpuStream& stream) const {
    Passes passes{.forward = measure([&](std::size_t) { run(stream, forward); }), .backward = {}};
    if (trains()) passes.backward = measure([&](std::size_t) { run(stream, backward); });
    return passes;
  }
  double seconds(const CpuStream& stream) const {
    const auto start = Clock::now();
    run(stream, forward);
    if (trains()) run(stream, backward);
    return seconds_since(start);
  }
};

/// Returns the median over rounds of a's time divided by b's. Each round runs both in immediate succession, so that
/// other load on the machine affects both equally.
template <class A, class B>
double ratio(const CpuStream& stream, const A& a, const B& b) {
  std::array<double, 15> ratios;
  for (double& each : ratios) {
    const double own = a.seconds(stream);
    each = own / b.seconds(stream);
  }
  std::nth_element(ratios.begin(), ratios.begin() + ratios.size() / 2, ratios.end());
  return ratios[ratios.size() / 2];
}

/// Random operands of all kinds of attention for a shape, and memory for their results.
template <class T>
class Operands {
 public:
  Operands(const CpuStream& stream, const AttentionShape& shape)
      : shape_(shape),
        q_(queries(stream, "q")),
        k_(keys(stream, "k")),
        v_(keys(stream, "v")),
        d_out_(queries(stream, "d")),
        out_(queries(stream, "o")),
        dq_(queries(stream, "o")),
        dk_(keys(stream, "o")),
        dv_(keys(stream, "o")),
        log_sum_exp_(random_tensor<Accumulator<T>>(stream, rows(), shape.heads, "l")),
        log_rest_(random_tensor<double>(stream, rows(), shape.heads, "l")) {}

  auto softmax(std::int64_t window = 0) const {
    AttentionShape shape = shape_;
    shape.window = window;
    const Matrix<Accumulator<T>> sums = log_sum_exp_.matrix<Accumulator<T>>();
    return Kind{AttentionForward<T>{shape, view(q_), view(k_), view(v_), out_.matrix<T>(), sums, scale()},
                AttentionBackward<T>{shape, view(q_), view(k_), view(v_), out_.matrix<T>(), view(d_out_), sums,
                                     dq_.matrix<T>(), dk_.matrix<T>(), dv_.matrix<T>(), scale()}};
  }
  auto sticks() const {
    const Matrix<double> rests = log_rest_.matrix<double>();
    return Kind{StickBreakingForward<T>{shape_, view(q_), view(k_), view(v_), out_.matrix<T>(), rests, scale()},
                StickBreakingBackward<T>{shape_, view(q_), view(k_), view(v_), view(d_out_), rests, dq_.matrix<T>(),
                                         dk_.matrix<T>(), dv_.matrix<T>(), scale()}};
  }
  /// Returns the FLOPs of one matrix product over all pairs of a query and a key that it sees.
  double product(std::int64_t window = 0) const {
    double pairs = 0;
    for (std::int64_t query = 0; query < shape_.query_len; ++query) {
      const std::int64_t seen = shape_.key_len - shape_.query_len + query + 1;
      pairs += static_cast<double>(window > 0 ? std::min(window, seen) : seen);
    }
    return 2 * static_cast<double>(shape_.sequences * shape_.heads * shape_.head_dim) * pairs;
  }

 private:
  std::int64_t rows() const { return shape_.sequences * shape_.query_len; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(shape_.head_dim)); }
  static Matrix<const T> view(const Tensor& tensor) { return tensor.matrix<T>(); }
  Tensor queries(const CpuStream& stream, const char* name) const {
    return random_tensor<T>(stream, rows(), shape_.heads * shape_.head_dim, name);
  }
  Tensor keys(const CpuStream& stream, const char* name) const {
    return random_tensor<T>(stream, shape_.sequences * shape_.key_len, shape_.kv_heads * shape_.head_dim, name);
  }

  AttentionShape shape_;
  Tensor q_, k_, v_, d_out_, out_, dq_, dk_, dv_, log_sum_exp_, log_rest_;
};

/// Measures both kinds for shape `s`, prints a line for each pass, and the rate of stick-breaking relative to softmax.
template <class T>
void shape(const CpuStream& stream, const AttentionShape& s, double best) {
  const Operands<T> operands(stream, s);
  const Table table{.shape = s, .product = operands.product(), .best = best};
  const auto softmax = operands.softmax();
  const auto sticks = operands.sticks();
  table.lines("softmax", softmax.measured(stream));
  table.lines("sticks", sticks.measured(stream));
  fmt::print("  stick-breaking at {:.2f} of softmax's rate\n", ratio(stream, softmax, sticks));
}

/// Measures softmax attention with and without a window, and prints the ratio of the two times, forward and backward
/// together.
template <class T>
void in_window(const CpuStream& stream, const AttentionShape& s, std::int64_t window, double best) {
  const Operands<T> operands(stream, s);
  const auto all = operands.softmax(), windowed = operands.softmax(window);
  Table{.shape = s, .product = operands.product(), .best = best}.lines("softmax", all.measured(stream));
  Table{.shape = s, .product = operands.product(window), .best = best}.lines(fmt::format("w. {}", window),
                                                                             windowed.measured(stream));
  fmt::print("  a window of {} takes {:.3f} of the time of attention to all {} tokens\n", window,
             ratio(stream, windowed, all), s.key_len);
}

template <class T>
void all(const CpuStream& stream, const std::string& type, dnnl::memory::data_type dnnl_type) {
  const double best = best_gemm_rate(stream.threads(), dnnl_type);
  fmt::print("{}, {} threads; oneDNN 512^3: {:.1f} GFLOP/s\n", type, stream.threads(), best * 1e-9);
  fmt::print("  {:>9} {:>7} {:>6} {:>8} {:>4}  {:<8} {:<8} {:>9} {:>5} {:>9} {:>7}\n", "sequences", "length", "heads",
             "kv_heads", "dim", "weights", "", "ms", "±%", "GFLOP/s", "share");
  shape<T>(stream, {16, 512, 512, 8, 8, 64}, best);
  shape<T>(stream, {16, 512, 512, 8, 2, 64}, best);
  shape<T>(stream, {1, 2048, 2048, 8, 8, 64}, best);
  shape<T>(stream, {2, 1000, 1000, 4, 4, 128}, best);
  shape<T>(stream, {1, 1, 1024, 8, 8, 64}, best);
  in_window<T>(stream, {1, 8192, 8192, 2, 2, 64}, 512, best);
  fmt::print("\n");
}

/// The attention of one block: with experts, or dense with as many heads as a token uses of the experts.
class HalfBlock {
 public:
  HalfBlock(const CpuStream& stream, const Mesh& mesh, DType type, const Config& config) : stream_(stream) {
    const SublayerSpec spec = attention_spec(config, 0);
    half_ = spec.make(
        config, spec,
        {.mesh = mesh, .units = {unit_, unit_, unit_}, .measured = {}, .stream = stream, .type = type, .train = true});
    unit_.allocate(stream, type, true);
    unit_.initialize(stream, 1);
  }
  /// Runs forward and backward.
  void run(const Pass& pass, const Tensor& x) const {
    Tape tape(stream_);
    const Variable y = half_->forward(tape, pass, tape.leaf(x)).y;
    tape.backward({{y, x}});
  }

 private:
  Stream stream_;
  ParameterUnit unit_{"attention", ParameterUnit::Group::dense, 0};
  std::unique_ptr<Sublayer> half_;
};

template <class T>
void experts(const CpuStream& stream, const Mesh& mesh, const std::string& type) {
  constexpr std::int64_t sequences = 16;
  Config dense;
  dense.model.hidden = 512;
  dense.model.kv_heads = 8;
  dense.model.head_dim = 64;
  dense.model.heads = 16;
  Config mixture = dense;
  mixture.model.heads = 8;
  mixture.model.attention = AttentionKind::experts;
  mixture.attention_experts = {.count = 16, .top_k = 2, .gates = {}};
  const Tensor x = random_tensor<T>(stream, sequences * dense.batch.seq_len, dense.model.hidden, "x");
  const Tensor rope = Tensor::empty(stream, accumulator_of(dtype_of<T>), {dense.batch.seq_len, dense.model.head_dim});
  launch(Stream(stream), RopeTable<Accumulator<T>>{rope.matrix<Accumulator<T>>(), dense.model.rope_base});
  const Pass pass{.batch = {.inputs = {}, .targets = {}, .sequences = sequences, .seq_len = dense.batch.seq_len},
                  .layout = TokenLayout(x.shape()[0], dense.batch.seq_len),
                  .rope = rope,
                  .counts = false};
  const HalfBlock heads(stream, mesh, dtype_of<T>, dense), experts(stream, mesh, dtype_of<T>, mixture);
  const Timing of_heads = measure([&](std::size_t) { heads.run(pass, x); });
  const Timing of_experts = measure([&](std::size_t) { experts.run(pass, x); });
  const auto tokens = static_cast<double>(x.shape()[0]);
  fmt::print("{}, {} tokens in sequences of {}, 16 query heads of 64 each, 8 of keys\n", type, x.shape()[0],
             dense.batch.seq_len);
  fmt::print("  dense attention                      {:>9.0f} tokens/s  ±{:.0f}%\n", tokens / of_heads.median,
             100 * of_heads.spread);
  fmt::print("  2 of 16 attention experts of 8 heads {:>9.0f} tokens/s  ±{:.0f}%  {:.2f} of it\n",
             tokens / of_experts.median, 100 * of_experts.spread, of_heads.median / of_experts.median);
}

}  // namespace
}  // namespace lyceum

int main(int argc, char** argv) {
  const lyceum::MpiSession session;
  const lyceum::CpuStream stream(argc > 1 ? std::atoi(argv[1]) : 0);
  lyceum::all<float>(stream, "f32", dnnl::memory::data_type::f32);
  lyceum::all<lyceum::bfloat16>(stream, "bf16", dnnl::memory::data_type::bf16);
  const lyceum::Mesh mesh = lyceum::Mesh::create(lyceum::ProcessGroup::self(), {});
  lyceum::experts<float>(stream, mesh, "f32");
  lyceum::experts<lyceum::bfloat16>(stream, mesh, "bf16");
}
