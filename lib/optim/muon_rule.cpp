#include "optim/muon_rule.h"

#include <vector>

#include "core/profile_scope.h"
#include "kernels/muon.h"
#include "optim/muon_exchange.h"
#include "optim/muon_group.h"
#include "optim/step_rates.h"
#include "optim/update_tables.h"

namespace lyceum {

namespace {

class MuonRule final : public UpdateRule {
 public:
  explicit MuonRule(const UpdateRuleInput& input)
      : stream_(input.stream), momentum_(input.config.momentum), tables_(input), rates_(input.stream, input.config) {
    const RuleAssignment rules(input.config);
    std::vector<double> loads(static_cast<std::size_t>(input.mesh.data_tensor.size()));
    for (const ParameterUnit::Group group : muon_groups) {
      exchanges_.emplace_back(input.stream, input.mesh, input.shares, rules, group, loads);
    }
  }

  void prepare(double lr, std::int64_t n) const override { rates_.upload(lr, n); }
  void launch(const Launch& launch) const override {
    tables_.update_momentum(momentum_, rates_.update(), launch.verdict);
    {
      const ProfileScope timed(profile_of(stream_), "orthogonalize");
      for (const MuonExchange& exchange : exchanges_) exchange.run(launch.verdict);
    }
    tables_.update(AdamWOrMuon{.first = rates_.adamw(), .second = {.numbers = rates_.numbers()}}, rates_.update(),
                   launch);
  }
  void check_digests(bool renew) const override { tables_.check_digests(renew); }
  void slices_renamed() const override { tables_.slices_renamed(); }
  std::optional<Damage> damage() const override { return tables_.damage(); }
  ProcessGroup::Traffic traffic(ParameterUnit::Group group) const override {
    for (std::size_t g = 0; g < muon_groups.size(); ++g) {
      if (muon_groups[g] == group) return exchanges_[g].traffic();
    }
    return {};
  }

 private:
  Stream stream_;
  double momentum_;
  UpdateTables tables_;
  StepRates rates_;
  std::vector<MuonExchange> exchanges_;  // one per element of muon_groups
};

}  // namespace

std::unique_ptr<UpdateRule> make_muon_rule(const UpdateRuleInput& input) { return std::make_unique<MuonRule>(input); }

}  // namespace lyceum
