#include "plan/cluster.h"

#include "support.h"

/// Reads a file of `lyceum plan --cluster`.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  const std::string file = fuzz::input_file("cluster.ini", fuzz::text_of(data, size));
  return fuzz::taken_or_refused([&] {
    const Cluster cluster = read_cluster(file, Precision::bf16);
    fuzz::hold(cluster.node_ranks >= 1 && cluster.flops > 0 && cluster.overlap <= 1,
               "a cluster with impossible values is accepted");
  });
}
