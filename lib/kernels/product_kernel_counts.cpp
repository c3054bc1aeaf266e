#include "kernels/product_kernel_counts.h"

#ifdef LYCEUM_CUDA
#include "core/error.h"
#include "kernels/cuda/grouped_kernels.cuh"
#include "kernels/cuda/grouped_wgmma_layout.h"
#endif

namespace lyceum {

#ifdef LYCEUM_CUDA

std::map<std::string, std::int64_t> product_kernel_counts(const Stream& stream) {
  const auto* gpu = std::get_if<CudaStream>(&stream);
  if (!gpu) return {};
  const auto& [products, with_activation] = gpu->keep<grouped::KernelCounts>();
  const auto wgmma = []<class Tiling>(Tiling) { return format_message("wgmma {} x {}", {Tiling::m, Tiling::n}); };
  std::map<std::string, std::int64_t> named;
  const auto add = [&](const std::string& name, grouped::Kernel kernel) {
    const auto k = static_cast<std::size_t>(kernel);
    if (products[k] > 0) named[name] = products[k];
    if (with_activation[k] > 0) named[name + " with activation"] = with_activation[k];
  };
  add("plain", grouped::Kernel::plain);
  add("mma.sync", grouped::Kernel::mma_sync);
  add(wgmma(grouped::CooperativeTiling{}), grouped::Kernel::cooperative);
  add(wgmma(grouped::PingPongTiling{}), grouped::Kernel::ping_pong);
  add("wgmma in clusters", grouped::Kernel::clustered);
  return named;
}

#else

std::map<std::string, std::int64_t> product_kernel_counts(const Stream&) { return {}; }

#endif

}  // namespace lyceum
