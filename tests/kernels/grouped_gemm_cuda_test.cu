// The grouped products on a GPU, each kernel by itself. Where there is none: "no device", not run.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/cpu/reference_gemm.h"
#include "kernels/cuda/grouped_gemm.cuh"
#include "kernels/grouped_bank.h"

namespace lyceum {
namespace {

using namespace test;
using grouped::Kernel;

void must(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

/// A copy of host memory on the device.
template <class T>
class OnDevice {
 public:
  OnDevice(const T* from, std::size_t count) : count_(count) {
    must(cudaMalloc(&data_, std::max<std::size_t>(count, 1) * sizeof(T)));
    must(cudaMemcpy(data_, from, count * sizeof(T), cudaMemcpyHostToDevice));
  }
  OnDevice(OnDevice&& other) noexcept : data_(std::exchange(other.data_, nullptr)), count_(other.count_) {}
  ~OnDevice() { cudaFree(data_); }
  T* data() const { return data_; }
  std::span<const T> span() const { return {data_, count_}; }
  void to(T* host) const { must(cudaMemcpy(host, data_, count_ * sizeof(T), cudaMemcpyDeviceToHost)); }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

template <class T>
OnDevice<T> copy_of(std::span<const T> values) {
  return {values.data(), values.size()};
}

/// Elements from the first of a matrix to the last, gaps included.
template <class T>
std::size_t reach(const Matrix<T>& matrix) {
  return static_cast<std::size_t>(matrix.rows * matrix.stride);
}

/// A bank's segments and activations on the device.
template <class T>
struct Activations {
  OnDevice<std::int64_t> begin, rows, x_offset, y_offset;
  OnDevice<T> x, y, workspace;

  explicit Activations(Bank<T>& bank)
      : begin(copy_of(bank.table.view().begin)),
        rows(copy_of(bank.table.view().rows)),
        x_offset(copy_of(bank.x_layout.over(bank.x.data()).offset)),
        y_offset(copy_of(bank.y_layout.over(bank.y.data()).offset)),
        x(bank.x.data(), bank.x.size()),
        y(bank.y.data(), bank.y.size()),
        workspace(std::vector<T>(grouped::workspace_bytes(bank.table.view().count()) / sizeof(T)).data(),
                  grouped::workspace_bytes(bank.table.view().count()) / sizeof(T)) {}
  Segments segments() const { return {begin.span(), rows.span()}; }
};

template <class T>
void run_on_device(Bank<T>& bank, bool transpose, Kernel kernel) {
  const Activations<T> on(bank);
  std::vector<OnDevice<T>> weights;
  std::vector<Matrix<const T>> views;
  for (const Matrix<const T>& weight : bank.weights) {
    weights.emplace_back(weight.data, reach(weight));
    views.emplace_back(weights.back().data(), weight.rows, weight.cols, weight.stride);
  }
  const GroupedGemm<T> product{
      on.segments(), {on.x.data(), on.x_offset.span(), {}}, views, {on.y.data(), on.y_offset.span(), {}}, transpose};
  grouped::launch(nullptr, on.workspace.data(), product, kernel);
  must(cudaDeviceSynchronize());
  on.y.to(bank.y.data());
}

template <class T>
void run_gradient_on_device(Bank<T>& bank, Kernel kernel) {
  using A = Accumulator<T>;
  const Activations<T> on(bank);
  std::vector<OnDevice<A>> gradients;
  std::vector<Matrix<A>> views;
  for (const Matrix<A>& gradient : bank.gradients) {
    gradients.emplace_back(gradient.data, reach(gradient));
    views.emplace_back(gradients.back().data(), gradient.rows, gradient.cols, gradient.stride);
  }
  const GroupedWeightGrad<T> product{
      on.segments(), {on.y.data(), on.y_offset.span(), {}}, {on.x.data(), on.x_offset.span(), {}}, views};
  grouped::launch(nullptr, on.workspace.data(), product, kernel);
  must(cudaDeviceSynchronize());
  for (std::size_t e = 0; e < gradients.size(); ++e) gradients[e].to(bank.gradients[e].data);
}

template <class T>
void check_rows(const Case& c, Kernel kernel, bool transpose) {
  auto bank = Bank<T>::template made<T>(c.rows, c.in, c.out, transpose, false, c.gap);
  auto exact = Bank<double>::template made<T>(c.rows, c.in, c.out, transpose, false, c.gap);
  poison(bank, bank.x_layout, bank.x);
  run_on_device(bank, transpose, kernel);
  reference::run(CpuStream(4), exact.product(transpose));
  for (std::int64_t e = 0; e < bank.table.view().count(); ++e) {
    SCOPED_TRACE(testing::Message() << "expert " << e << (transpose ? " forward" : " dgrad"));
    expect_rounded<T>(bank.y_of(e), exact.y_of(e));
  }
  const std::vector<T> first = bank.y;
  run_on_device(bank, transpose, kernel);
  EXPECT_EQ(std::memcmp(first.data(), bank.y.data(), first.size() * sizeof(T)), 0) << "other bits the second time";
}

template <class T>
void check_weight_grad(const Case& c, Kernel kernel) {
  auto bank = Bank<T>::template made<T>(c.rows, c.in, c.out, false, true, c.gap);
  auto exact = Bank<double>::template made<T>(c.rows, c.in, c.out, false, true, c.gap);
  poison(bank, bank.x_layout, bank.x);
  poison(bank, bank.y_layout, bank.y);
  run_gradient_on_device(bank, kernel);
  reference::run(CpuStream(4), exact.weight_grad());
  for (std::size_t e = 0; e < bank.gradients.size(); ++e) {
    SCOPED_TRACE(testing::Message() << "gradient of expert " << e);
    expect_rounded<T>(bank.gradients[e], exact.gradients[e]);
    EXPECT_TRUE(bank.owned_gradients[e]->gaps_untouched());
  }
}

template <class T>
void check(const Case& c, Kernel kernel) {
  check_rows<T>(c, kernel, true);
  check_rows<T>(c, kernel, false);
  check_weight_grad<T>(c, kernel);
}

class CudaGrouped : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no device";
  }
};

TEST_P(CudaGrouped, Bf16AgreesWithTheReference) { check<bfloat16>(GetParam(), Kernel::automatic); }
TEST_P(CudaGrouped, MmaSyncAgreesWithTheReference) { check<bfloat16>(GetParam(), Kernel::mma_sync); }
TEST_P(CudaGrouped, FloatAgreesWithTheReference) { check<float>(GetParam(), Kernel::automatic); }
TEST_P(CudaGrouped, DoubleAgreesWithTheReference) { check<double>(GetParam(), Kernel::automatic); }

/// As the flagship's, but smaller: tiles of both widths, deep sums, a column tile that is mostly outside.
const Case wide{{700, 1, 130, 0, 300}, {1280, 1280, 640, 64, 1280}, {1728, 192, 864, 64, 200}, 8};
/// More experts than one launch of the plan takes.
const Case many{Widths(300, 3), Widths(300, 24), Widths(300, 40), 8};

INSTANTIATE_TEST_SUITE_P(Cases, CudaGrouped, testing::Values(uneven, all_empty, one, large, aligned, wide, many));

/// Kernels of sm_90 alone, which take aligned rows only.
class CudaGroupedHopper : public CudaGrouped {
 protected:
  void SetUp() override {
    CudaGrouped::SetUp();
    int major = 0;
    if (!IsSkipped()) must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    if (!IsSkipped() && major != 9) GTEST_SKIP() << "no device of sm_90";
  }
};

TEST_P(CudaGroupedHopper, CooperativeAgreesWithTheReference) { check<bfloat16>(GetParam(), Kernel::cooperative); }
TEST_P(CudaGroupedHopper, PingPongAgreesWithTheReference) { check<bfloat16>(GetParam(), Kernel::ping_pong); }

INSTANTIATE_TEST_SUITE_P(Cases, CudaGroupedHopper, testing::Values(aligned, wide, many));

}  // namespace
}  // namespace lyceum
