#include "config/consistency.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "config/config.h"
#include "config/findings.h"
#include "config/mesh.h"
#include "io/text/table.h"

namespace lyceum {

std::int64_t sample_copies(const Config& config) { return config.model.consistency > 0 ? 2 : 1; }

std::int64_t samples_per_step(const Config& config) { return config.batch.global / sample_copies(config); }

void check_consistency(Findings& findings, const Config& config, int world) {
  if (!(config.model.consistency > 0)) return;
  findings.unless_zero("model.loss_chunk", config.model.loss_chunk,
                       "with model.consistency, which compares the logits of whole sequences");
  const std::optional<RankBatch> batch = rank_batch(config, world);
  if (!batch || batch->share < 1) return;
  const std::string remedy = batch->share % 2 == 0
                                 ? std::string("an even batch.micro")
                                 : fmt::format("batch.global to a multiple of {} and an even batch.micro",
                                               2 * config.batch.global / batch->share);
  findings.unless(batch->micro % 2 == 0,
                  "model.consistency = {} needs both copies of a sample in one micro-batch, but a rank's micro-batches "
                  "have {}: set {}",
                  config.model.consistency, count_text(batch->micro, "sequence"), remedy);
}

}  // namespace lyceum
