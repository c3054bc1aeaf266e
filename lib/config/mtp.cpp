#include "config/mtp.h"

#include "config/config.h"
#include "config/findings.h"
#include "config/keys.h"

namespace lyceum {

void declare_keys(ConfigKeys& keys, MtpConfig& mtp) {
  using enum KeyRole;
  const KeySection key(keys, identity);
  key("mtp.depth", &mtp.depth, {.low = 0, .high = most_layers},
      "modules of multi-token prediction, each of which predicts one more token ahead in training; 0: none",
      {.other_names = {"mtp_num_layers", "num_nextn_predict_layers", "num_mtp_layers"}});
  key("mtp.weight", &mtp.weight, loss_weight, "factor of the mean of the modules' losses",
      {.role = tuning, .other_names = {"mtp_loss_scaling_factor"}});
}

void check_mtp(Findings& findings, const Config& config) {
  const std::int64_t depth = config.mtp.depth, seq_len = config.batch.seq_len;
  findings.unless(depth <= 0 || seq_len <= 0 || depth < seq_len,
                  "mtp.depth = {} with batch.seq_len = {} leaves the last module no token to predict: set mtp.depth "
                  "below batch.seq_len",
                  depth, seq_len);
}

void simplify_mtp(MtpConfig& mtp) {
  if (mtp.depth == 0) mtp = {};
}

bool needs_span_starts(const Config& config) {
  return config.mtp.depth > 0 && config.data.samples == SampleKind::packed && !config.data.document_mask;
}

std::int64_t all_blocks(const Config& config) { return config.model.layers + config.mtp.depth; }

}  // namespace lyceum
