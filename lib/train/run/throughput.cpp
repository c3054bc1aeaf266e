#include "train/run/throughput.h"

#include "model/counts.h"

namespace lyceum {

Throughput::Throughput(const Config& config, const RunPeak& peak)
    : tokens_(static_cast<double>(config.batch.global * config.batch.seq_len)),
      flops_(count_model(config).causal_flops_per_sequence * static_cast<double>(config.batch.global)),
      peak_(peak.flops) {}

}  // namespace lyceum
