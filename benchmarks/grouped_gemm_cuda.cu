// Measures grouped products of an expert bank on a GPU, and compares them with one dense cuBLASLt product of as many
// FLOPs in the same run.
//
//   bench_grouped_gemm_cuda [--width W]... [--experts 63] [--hidden 1280] [--tokens 32768] [--top-k 7] [--rounds 20]
//
// For every width (default: 856 and 896, the flagship's width in multiples of 8 and of 64), with rows spread evenly and
// unevenly over the experts, prints TFLOP/s of
// - forward, dgrad and weight gradient of the up and the down projection;
// - the up projection with picked rows of the tokens, and the weight gradient of the down projection with picked rows
//   of the gradients, compared with a gather followed by the plain product;
// - the products combined with SwiGLU, forward, backward, and backward with gates and picked rows, compared with two
//   separate kernels.
// "automatic" is the kernel that training uses. The kernels for sm_90 are measured if rows are aligned: cooperative
// tiles, which do not apply to activations, ping-pong tiles, and clusters of blocks.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "cuda_timing.cuh"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/grouped_gemm.cuh"
#include "kernels/permute.h"

namespace lyceum {

static void must(cublasStatus_t code, const char* call) {
  require(code == CUBLAS_STATUS_SUCCESS, "{}: error {}", call, static_cast<int>(code));
}

namespace {

struct Options {
  std::vector<std::int64_t> widths;
  std::int64_t experts = 63, hidden = 1280, tokens = 16 * 2048, top_k = 7;
  int rounds = 20;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string key = argv[i];
    require_usage(i + 1 < argc, "{} needs a number", key);
    const std::int64_t value = std::atoll(argv[i + 1]);
    require_usage(value > 0, "{} {}: not a positive number", key, argv[i + 1]);
    if (key == "--width") {
      options.widths.push_back(value);
    } else if (key == "--experts") {
      options.experts = value;
    } else if (key == "--hidden") {
      options.hidden = value;
    } else if (key == "--tokens") {
      options.tokens = value;
    } else if (key == "--top-k") {
      options.top_k = value;
    } else if (key == "--rounds") {
      options.rounds = static_cast<int>(value);
    } else {
      fail(ExitCode::usage, "{}: no such option", key);
    }
  }
  if (options.widths.empty()) options.widths = {856, 896};
  return options;
}

/// Returns the number of rows of each expert: equal, or falling as 1 / sqrt(rank), which gives the busiest of 63
/// experts about 8 times the rows of the least busy one.
std::vector<std::int64_t> spread_rows(const Options& options, bool even) {
  std::vector<double> share;
  double sum = 0;
  for (std::int64_t e = 0; e < options.experts; ++e) {
    share.push_back(even ? 1.0 : 1.0 / std::sqrt(static_cast<double>(e * 37 % options.experts + 1)));
    sum += share.back();
  }
  const std::int64_t total = options.tokens * options.top_k;
  std::vector<std::int64_t> rows;
  double before = 0;
  for (const double part : share) {
    const auto first = static_cast<std::int64_t>(before / sum * static_cast<double>(total));
    before += part;
    rows.push_back(static_cast<std::int64_t>(before / sum * static_cast<double>(total)) - first);
  }
  return rows;
}

/// y = x · wᵀ for all rows with one weight, computed by cuBLASLt: bf16 with sums in f32.
class DenseProduct {
 public:
  DenseProduct(const CudaStream& stream, std::int64_t rows, std::int64_t in, std::int64_t out, const bfloat16* x,
               const bfloat16* w)
      : stream_(stream), x_(x), w_(w), y_(static_cast<std::size_t>(rows * out)), workspace_(workspace_bytes) {
    must(cublasLtCreate(&handle_), "cublasLtCreate");
    must(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    // Column-major: yᵀ[out, rows] = w[out, in] · xᵀ[in, rows], where w's memory is a column-major [in, out].
    const cublasOperation_t transpose = CUBLAS_OP_T;
    must(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
         "cublasLtMatmulDescSetAttribute");
    must(cublasLtMatrixLayoutCreate(&w_layout_, CUDA_R_16BF, in, out, in), "cublasLtMatrixLayoutCreate");
    must(cublasLtMatrixLayoutCreate(&x_layout_, CUDA_R_16BF, in, rows, in), "cublasLtMatrixLayoutCreate");
    must(cublasLtMatrixLayoutCreate(&y_layout_, CUDA_R_16BF, out, rows, out), "cublasLtMatrixLayoutCreate");
    choose();
  }
  DenseProduct(const DenseProduct&) = delete;
  ~DenseProduct() {
    cublasLtMatrixLayoutDestroy(w_layout_);
    cublasLtMatrixLayoutDestroy(x_layout_);
    cublasLtMatrixLayoutDestroy(y_layout_);
    cublasLtMatmulDescDestroy(operation_);
    cublasLtDestroy(handle_);
  }
  void run() const { run(chosen_); }

 private:
  static constexpr std::size_t workspace_bytes = 64u << 20;

  void run(const cublasLtMatmulAlgo_t& algorithm) const {
    const float one = 1, zero = 0;
    must(cublasLtMatmul(handle_, operation_, &one, w_, w_layout_, x_, x_layout_, &zero, y_.data(), y_layout_, y_.data(),
                        y_layout_, &algorithm, workspace_.data(), workspace_bytes, stream_.handle()),
         "cublasLtMatmul");
  }
  /// Chooses the fastest of the algorithms that the heuristic proposes.
  void choose() {
    cublasLtMatmulPreference_t preference;
    must(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    must(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                              sizeof workspace_bytes),
         "cublasLtMatmulPreferenceSetAttribute");
    cublasLtMatmulHeuristicResult_t found[8];
    int count = 0;
    must(cublasLtMatmulAlgoGetHeuristic(handle_, operation_, w_layout_, x_layout_, y_layout_, y_layout_, preference, 8,
                                        found, &count),
         "cublasLtMatmulAlgoGetHeuristic");
    cublasLtMatmulPreferenceDestroy(preference);
    require(count > 0, "cuBLASLt has no algorithm for the dense product");
    Timer timer(stream_);
    double best = INFINITY;
    for (int i = 0; i < count; ++i) {
      run(found[i].algo);
      const double seconds = timer.once([&] { run(found[i].algo); });
      if (seconds < best) {
        best = seconds;
        chosen_ = found[i].algo;
      }
    }
  }

  const CudaStream& stream_;
  const bfloat16 *x_, *w_;
  DeviceArray<bfloat16> y_;
  DeviceArray<std::byte> workspace_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t w_layout_ = nullptr, x_layout_ = nullptr, y_layout_ = nullptr;
  cublasLtMatmulAlgo_t chosen_;
};

/// Rows of experts that are copies of tokens. Each expert's tokens are in ascending order, as with a router.
class Copies {
 public:
  Copies(const CudaStream& stream, const Options& options, const SegmentTable& table,
         const std::vector<std::int64_t>& counts, std::int64_t width)
      : top_k_(options.top_k),
        tokens_(static_cast<std::size_t>(options.tokens * width)),
        index_(static_cast<std::size_t>(table.total())),
        matrix_(tokens_.data(), options.tokens, width) {
    std::vector<std::int64_t> source(index_.size(), -1), used(static_cast<std::size_t>(options.tokens));
    for (std::size_t e = 0; e < counts.size(); ++e) {
      for (std::int64_t r = 0; r < counts[e]; ++r) {
        const std::int64_t token = r * options.tokens / counts[e];
        source[static_cast<std::size_t>(table.begin_on_host()[e] + r)] =
            token * top_k_ + used[static_cast<std::size_t>(token)]++ % top_k_;
      }
    }
    must(cudaMemcpy(index_.data(), source.data(), source.size() * sizeof(std::int64_t), cudaMemcpyHostToDevice),
         "cudaMemcpy");
    fill(stream, tokens_, 4);
  }
  std::span<const std::int64_t> index() const { return {index_.data(), index_.size()}; }
  PickedRows<bfloat16> picked() const { return {matrix_, index(), top_k_}; }
  GatherRows<bfloat16> gather(bfloat16* rows) const {
    return {matrix_, index(), {rows, static_cast<std::int64_t>(index_.size()), matrix_.cols}, top_k_};
  }

 private:
  std::int64_t top_k_;
  DeviceArray<bfloat16> tokens_;
  DeviceArray<std::int64_t> index_;
  Matrix<const bfloat16> matrix_;
};

/// One projection of the bank, from `in` to `out` columns.
class Projection {
 public:
  Projection(const CudaStream& stream, const Options& options, const std::vector<std::int64_t>& rows, std::int64_t in,
             std::int64_t out)
      : stream_(stream),
        table_(stream, rows),
        x_layout_(stream, table_, std::vector<std::int64_t>(rows.size(), in)),
        y_layout_(stream, table_, std::vector<std::int64_t>(rows.size(), out)),
        x_(static_cast<std::size_t>(x_layout_.size())),
        y_(static_cast<std::size_t>(y_layout_.size())),
        weights_(static_cast<std::size_t>(options.experts * in * out)),
        gradients_(weights_.size()),
        dense_(stream, table_.total(), in, out, x_.data(), weights_.data()),
        flops_(2.0 * static_cast<double>(options.tokens * options.top_k * in * out)) {
    fill(stream, weights_, 3);
    must(cudaMemsetAsync(gradients_.data(), 0, gradients_.size() * sizeof(float), stream.handle()), "cudaMemsetAsync");
    for (std::int64_t e = 0; e < options.experts; ++e) {
      forward_weights_.emplace_back(weights_.data() + e * in * out, out, in);
      gradient_views_.emplace_back(gradients_.data() + e * in * out, out, in);
    }
  }

  /// Measures the grouped product and the dense one in turns, and prints one line per product.
  void measure(const char* name, int rounds, grouped::Kernel kernel, const char* kernel_name) {
    const Segments segments = table_.view();
    const SegmentedMatrix<bfloat16> x = x_layout_.over(x_.data()), y = y_layout_.over(y_.data());
    const GroupedGemm<bfloat16> forward{segments, x, forward_weights_, y, true};
    const GroupedGemm<bfloat16> dgrad{segments, y, forward_weights_, x, false};
    const GroupedWeightGrad<bfloat16> weight_grad{segments, y, x, gradient_views_};
    const auto print = [&](const char* product, const auto& grouped) {
      fill(stream_, x_, 1);  // dgrad overwrites what the others read
      fill(stream_, y_, 2);
      const auto [own, other] = compare(
          stream_, rounds, [&] { grouped::run(stream_, grouped, kernel); }, [&] { dense_.run(); });
      std::printf("  %-5s %-12s %-9s %8.3f ms %7.1f TFLOP/s   dense %8.3f ms %7.1f TFLOP/s   %5.1f %%\n", name, product,
                  kernel_name, own * 1e3, flops_ / own * 1e-12, other * 1e3, flops_ / other * 1e-12, 100 * other / own);
    };
    print("forward", forward);
    print("dgrad", dgrad);
    print("weight_grad", weight_grad);
  }

  /// Measures the product with picked rows of x, or of dy, in turns with the equivalent two kernels, and prints one
  /// line per product.
  void measure_picked(const char* name, bool of_dy, const Options& options, const std::vector<std::int64_t>& counts,
                      grouped::Kernel kernel, const char* kernel_name) {
    const Segments segments = table_.view();
    const SegmentedMatrix<bfloat16> x = x_layout_.over(x_.data()), y = y_layout_.over(y_.data());
    const Copies copies(stream_, options, table_, counts, of_dy ? forward_weights_[0].rows : forward_weights_[0].cols);
    fill(stream_, x_, 1);
    fill(stream_, y_, 2);
    const auto print = [&](const char* product, const auto& fused, const auto& separate) {
      const auto [own, other] = compare(
          stream_, options.rounds, [&] { grouped::run(stream_, fused, kernel); },
          [&] {
            run(stream_, copies.gather(of_dy ? y_.data() : x_.data()));
            grouped::run(stream_, separate, kernel);
          });
      std::printf("  %-5s %-12s %-9s %8.3f ms %7.1f TFLOP/s   gather first %8.3f ms   %5.1f %%\n", name, product,
                  kernel_name, own * 1e3, flops_ / own * 1e-12, other * 1e3, 100 * other / own);
    };
    const GroupedWeightGrad<bfloat16> weight_grad{segments, y, x, gradient_views_};
    GroupedWeightGrad<bfloat16> picked_grad = weight_grad;
    (of_dy ? picked_grad.picked_dy : picked_grad.picked) = copies.picked();
    if (!of_dy) {
      const GroupedGemm<bfloat16> forward{segments, x, forward_weights_, y, true};
      GroupedGemm<bfloat16> picked = forward;
      picked.picked = copies.picked();
      print("picked", picked, forward);
    }
    print("picked_wgrad", picked_grad, weight_grad);
  }

 private:
  const CudaStream& stream_;
  SegmentTable table_;
  SegmentLayout x_layout_, y_layout_;
  DeviceArray<bfloat16> x_, y_, weights_;
  DeviceArray<float> gradients_;
  DenseProduct dense_;
  double flops_;
  std::vector<Matrix<const bfloat16>> forward_weights_;
  std::vector<Matrix<float>> gradient_views_;
};

/// The products of a bank that are combined with SwiGLU: that of gate and up, and the data gradient of down.
class Activated {
 public:
  Activated(const CudaStream& stream, const Options& options, const std::vector<std::int64_t>& rows, std::int64_t width)
      : stream_(stream),
        table_(stream, rows),
        outer_(stream, table_, std::vector<std::int64_t>(rows.size(), options.hidden)),
        wide_(stream, table_, std::vector<std::int64_t>(rows.size(), 2 * width)),
        narrow_(stream, table_, std::vector<std::int64_t>(rows.size(), width)),
        x_(static_cast<std::size_t>(outer_.size())),
        hidden_(static_cast<std::size_t>(wide_.size())),
        d_hidden_(hidden_.size()),
        activated_(static_cast<std::size_t>(narrow_.size())),
        weights_(static_cast<std::size_t>(options.experts * options.hidden * 2 * width)),
        gate_(static_cast<std::size_t>(options.tokens * options.top_k)),
        d_gate_(gate_.size()),
        copies_(stream, options, table_, rows, options.hidden) {
    must(cudaMemsetAsync(gate_.data(), 0x3e, gate_.size() * sizeof(float), stream.handle()), "cudaMemsetAsync");
    fill(stream, x_, 1);
    fill(stream, hidden_, 2);
    fill(stream, weights_, 3);
    for (std::int64_t e = 0; e < options.experts; ++e) {
      in_.emplace_back(weights_.data() + e * options.hidden * 2 * width, 2 * width, options.hidden);
      down_.emplace_back(weights_.data() + e * options.hidden * width, options.hidden, width);
    }
    flops_ = 2.0 * static_cast<double>(options.tokens * options.top_k * options.hidden * width);
  }

  /// Measures one kernel and the equivalent two kernels in turns, and prints one line per product.
  void measure(int rounds, grouped::Kernel kernel, const char* kernel_name) {
    const auto print = [&](const char* product, double flops, const auto& work) {
      const auto [own, other] = compare(
          stream_, rounds, [&] { grouped::run(stream_, work, kernel); },
          [&] {
            grouped::run(stream_, work.product(), kernel);
            run(stream_, work.activation());
          });
      std::printf("  swiglu %-11s %-9s %8.3f ms %7.1f TFLOP/s   as two   %8.3f ms %24.1f %%\n", product, kernel_name,
                  own * 1e3, flops / own * 1e-12, other * 1e3, 100 * other / own);
    };
    const SegmentedMatrix<const bfloat16> x = outer_.over(x_.data());
    const SegmentedMatrix<bfloat16> hidden = wide_.over(hidden_.data()), activated = narrow_.over(activated_.data());
    const Segments segments = table_.view();
    print("forward", 2 * flops_, GemmThenActivation<bfloat16>{Activation::swiglu, segments, x, in_, hidden, activated});
    GemmThenActivationBackward<bfloat16> backward{Activation::swiglu,           segments, x, down_, hidden,
                                                  wide_.over(d_hidden_.data()), activated};
    print("backward", flops_, backward);
    backward.picked = copies_.picked();
    backward.gates = {copies_.index(), {gate_.data(), gate_.size()}, {d_gate_.data(), d_gate_.size()}};
    print("gated", flops_, backward);
  }

 private:
  const CudaStream& stream_;
  SegmentTable table_;
  SegmentLayout outer_, wide_, narrow_;
  DeviceArray<bfloat16> x_, hidden_, d_hidden_, activated_, weights_;
  DeviceArray<float> gate_, d_gate_;
  Copies copies_;
  std::vector<Matrix<const bfloat16>> in_, down_;
  double flops_ = 0;
};

int measure(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (CudaStream::device_count() == 0) {
    std::puts("no device: nothing measured");
    return 77;
  }
  const CudaStream stream;
  cudaDeviceProp device;
  must(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  std::printf("%s, %d multiprocessors; %lld experts, hidden %lld, %lld tokens, top-%lld; medians of %d\n", device.name,
              device.multiProcessorCount, static_cast<long long>(options.experts),
              static_cast<long long>(options.hidden), static_cast<long long>(options.tokens),
              static_cast<long long>(options.top_k), options.rounds);
  for (const std::int64_t width : options.widths) {
    for (const bool even : {true, false}) {
      std::printf("width %lld, rows spread %s\n", static_cast<long long>(width), even ? "evenly" : "unevenly");
      const std::vector<std::int64_t> rows = spread_rows(options, even);
      for (const auto& [kernel, name] :
           {std::pair{grouped::Kernel::automatic, "automatic"}, std::pair{grouped::Kernel::cooperative, "coop."},
            std::pair{grouped::Kernel::ping_pong, "ping-pong"}, std::pair{grouped::Kernel::clustered, "clustered"},
            std::pair{grouped::Kernel::mma_sync, "mma.sync"}}) {
        const bool aligned = width % 8 == 0 && options.hidden % 8 == 0, by_wgmma = kernel > grouped::Kernel::mma_sync;
        if (by_wgmma && !(aligned && can_run_hopper_kernels(stream))) continue;
        Projection up(stream, options, rows, options.hidden, 2 * width);
        up.measure("up", options.rounds, kernel, name);
        up.measure_picked("up", false, options, rows, kernel, name);
        Projection down(stream, options, rows, width, options.hidden);
        down.measure("down", options.rounds, kernel, name);
        down.measure_picked("down", true, options, rows, kernel, name);
        if (kernel != grouped::Kernel::cooperative && kernel != grouped::Kernel::mma_sync)
          Activated(stream, options, rows, width).measure(options.rounds, kernel, name);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace lyceum

int main(int argc, char** argv) {
  try {
    return lyceum::measure(argc, argv);
  } catch (const lyceum::Error& error) {
    std::fprintf(stderr, "bench_grouped_gemm_cuda: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
