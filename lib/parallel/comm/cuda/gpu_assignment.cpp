#include "parallel/comm/gpu_assignment.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "core/cuda_check.h"
#include "core/cuda_stream.h"
#include "parallel/comm/host_name.h"

namespace lyceum {
namespace {

/// Returns an id of the machine that is the same for all its processes, even in different containers, and unique.
std::string machine() {
  std::string id;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  if (std::getline(file, id)) return id;
  return host_name();
}

std::string pci_bus_id(int device) {
  char id[64] = "";
  check(cudaDeviceGetPCIBusId(id, sizeof id, device), "cudaDeviceGetPCIBusId");
  return id;
}

}  // namespace

GpuAssignment assign_gpus(const ProcessGroup& world) {
  const int seen = CudaStream::device_count();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(world.size()));
  const std::int64_t own[] = {seen};
  world.all_gather(own, counts);
  const auto blind = std::ranges::find(counts, 0);
  require_usage(blind == counts.end(),
                "rank {} sees no GPU: set run.device = cpu, or check that nvidia-smi lists a GPU there and that "
                "CUDA_VISIBLE_DEVICES does not hide it",
                blind - counts.begin());
  const std::vector<std::string> machines = world.all_gather(machine());
  const auto self = machines.begin() + world.rank();
  const int device = static_cast<int>(std::count(machines.begin(), self, *self)) % seen;
  const std::vector<std::string> gpus = world.all_gather(*self + " " + pci_bus_id(device));
  return {device, std::set<std::string>(gpus.begin(), gpus.end()).size() < gpus.size()};
}

}  // namespace lyceum
