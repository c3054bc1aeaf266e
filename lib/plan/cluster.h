#pragma once

#include <string>

#include "plan/traffic.h"

namespace lyceum {

/// What step times are estimated from, per rank: an INI file, see configs/clusters/. Rates are per second.
struct Cluster {
  std::string name;
  int node_ranks = 1;        // ranks of one machine, neighbours first
  double memory = 0;         // bytes of a rank
  double flops = 0;          // FLOP of matrix products as training reaches them, in run.precision
  double memory_bytes = 0;   // bytes of memory traffic, for the optimizer
  double node_bytes = 0;     // bytes that a rank sends to ranks of its machine
  double network_bytes = 0;  // and to others
  double node_latency = 0;   // seconds of one operation
  double network_latency = 0;
  double overlap = 0;  // share of backward behind which sums of gradients may hide, 0 to 1
};
/// Throws Errors (bad input) that name the file and every mistake.
Cluster read_cluster(const std::string& file, Precision precision);

/// What holds where no file is given: configs/clusters/h100-8x.ini.
Cluster default_cluster(Precision precision);

/// Seconds that a rank's traffic takes: an all-reduce moves 2(n−1)/n of its bytes, a reduce-scatter (n−1)/n, an
/// all-gather (n−1) times the own part; of an all-to-all the share of the peers on other machines goes by network.
double seconds(const Cluster& cluster, const Place& place, const Traffic& traffic);

}  // namespace lyceum
