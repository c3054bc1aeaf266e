#pragma once

#include <string>

#include "plan/traffic.h"

namespace lyceum {

/// The rates of the hardware from which step times are estimated, per rank and per second. They are read from an INI
/// file, see configs/clusters/.
struct Cluster {
  std::string name;
  int node_ranks = 1;  // ranks per machine; adjacent ranks share a machine
  double memory = 0;   // bytes of memory per rank
  /// FLOP/s of matrix products that training reaches in run.precision.
  double flops = 0;
  double memory_bytes = 0;     // bytes/s of memory traffic in the optimizer
  double node_bytes = 0;       // bytes/s from a rank to ranks of the same machine
  double network_bytes = 0;    // bytes/s from a rank to ranks of other machines
  double node_latency = 0;     // seconds per operation within a machine
  double network_latency = 0;  // seconds per operation across machines
  /// Share of the time of backward, 0 to 1, during which gradient reductions can be hidden behind it.
  double overlap = 0;
};
/// Reads a cluster file. `precision` selects between rank.tflops_bf16 and rank.tflops_f32. Throws a bad_input Error
/// that names the file and all mistakes.
Cluster read_cluster(const std::string& file, Precision precision);

/// Returns the cluster that is used if no file is given: configs/clusters/h100-8x.ini.
Cluster default_cluster(Precision precision);

/// Returns the seconds that a rank's traffic takes if operations do not overlap. A rank of a group of n ranks sends
///   - 2(n−1)/n of the bytes that Traffic counts for an all-reduce, (n−1)/n for a reduce-scatter,
///   - n−1 times the rank's own bytes for an all-gather, and
///   - all counted bytes otherwise.
/// If the group spans machines, the network's rate applies; an all-to-all uses the network only for the share of its
/// peers on other machines. Each operation adds ⌈log2 n⌉ latencies: over MPI, reductions and gathers take 1 to 2 · log2
/// n messages one after the other (ReductionLevel), and the n − 1 messages of an all-to-all are in flight together.
double seconds(const Cluster& cluster, const MeshRank& mesh_rank, const Traffic& traffic);

}  // namespace lyceum
