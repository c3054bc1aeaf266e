#include "optim/adamw_rule.h"

#include "kernels/adamw.h"
#include "optim/step_rates.h"
#include "optim/update_tables.h"

namespace lyceum {

namespace {

class AdamWRule final : public UpdateRule {
 public:
  explicit AdamWRule(const UpdateRuleInput& input) : tables_(input), rates_(input.stream, input.config) {}

  void prepare(double lr, std::int64_t n) const override { rates_.upload(lr, n); }
  void launch(const Launch& launch) const override { tables_.update(rates_.adamw(), rates_.update(), launch); }
  void check_digests(bool renew) const override { tables_.check_digests(renew); }
  void slices_renamed() const override { tables_.slices_renamed(); }
  std::optional<Damage> damage() const override { return tables_.damage(); }

 private:
  UpdateTables tables_;
  StepRates rates_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adamw_rule(const UpdateRuleInput& input) { return std::make_unique<AdamWRule>(input); }

}  // namespace lyceum
