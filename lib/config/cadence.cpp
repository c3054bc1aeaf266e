#include "config/cadence.h"

#include "config/config.h"
#include "config/findings.h"
#include "config/keys.h"

namespace lyceum {

void declare_keys(ConfigKeys& keys, EvalConfig& eval) {
  const KeySection key(keys, KeyRole::operation);
  key("eval.every", &eval.every, {.low = 0}, "steps between validations; 0: only at the end",
      {.other_names = {"eval_interval", "eval_steps"}});
  key("eval.batches", &eval.batches, {.low = 0}, "global batches per validation; 0: all data",
      {.other_names = {"eval_iters"}});
}

void declare_keys(ConfigKeys& keys, CheckpointConfig& checkpoint) {
  const KeySection key(keys, KeyRole::operation);
  key("checkpoint.every", &checkpoint.every, {.low = 0}, "steps between checkpoints; 0: no limit",
      {.other_names = {"save_interval", "save_steps"}});
  key("checkpoint.minutes", &checkpoint.minutes, {.low = 0, .high = 1e6},
      "minutes between checkpoints, in addition to checkpoint.every; 0: no limit");
  key("checkpoint.keep", &checkpoint.keep, {.low = 0}, "number of newest checkpoints to keep; 0: all",
      {.other_names = {"save_total_limit"}});
  key("checkpoint.resume", &checkpoint.resume, {.required = true, .hint = "auto | none | path"},
      "auto: the newest sound checkpoint, if any", {.other_names = {"resume_from_checkpoint"}});
  key("checkpoint.at_start", &checkpoint.at_start, {}, "also save a checkpoint at step 0");
  key("checkpoint.background", &checkpoint.background, {},
      "write checkpoints while training continues, from a copy in host memory");
}

void declare_keys(ConfigKeys& keys, RoutingConfig& routing) {
  const KeySection key(keys, KeyRole::operation);
  key("routing.every", &routing.every, {.low = 0}, "steps between records in routing.h5; 0: none");
  key("routing.dead_after", &routing.dead_after, {.low = 0},
      "steps in a row without a token after which an expert is reported as dead; 0: never");
}

void check_eval(Findings& findings, const Config& config) {
  findings.unless(
      config.eval.every <= 0 || !config.data.valid.empty() || config.data.valid_fraction > 0,
      "eval.every = {} with no data to validate on: set data.valid or data.valid_fraction, or eval.every = 0",
      config.eval.every);
}

}  // namespace lyceum
