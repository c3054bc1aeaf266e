#include "optim/adamw_rule.h"

#include <array>
#include <cmath>
#include <string_view>

#include "core/device_table.h"
#include "kernels/adamw.h"
#include "optim/update_tables.h"

namespace lyceum {

namespace {

class AdamWRule final : public UpdateRule {
 public:
  AdamWRule(const OptimConfig& config, const Stream& stream, std::span<const UpdatedShare> shares, bool watched)
      : config_(config),
        stream_(stream),
        tables_(stream, shares, config.weight_decay, watched),
        numbers_(table_of(stream, std::vector<AdamW::Numbers>(1))) {}

  void prepare(double lr, std::int64_t n) const override {
    const auto power = static_cast<double>(n);
    const AdamW::Numbers known{.lr = lr,
                               .rate = lr / (1 - std::pow(config_.beta1, power)),
                               .inverse_bias2 = 1 / (1 - std::pow(config_.beta2, power))};
    copy_to_device(stream_, numbers_.raw(), &known, sizeof known);
  }
  void launch(const Launch& launch) const override {
    tables_.update(AdamW{.beta1 = config_.beta1,
                         .beta2 = config_.beta2,
                         .eps = config_.eps,
                         .numbers = rows_of<AdamW::Numbers>(numbers_)},
                   launch);
  }
  void check_digests(bool renew) const override { tables_.check_digests(renew); }
  std::optional<Damage> damage() const override { return tables_.damage(); }

 private:
  OptimConfig config_;
  Stream stream_;
  UpdateTables<AdamW::states> tables_;
  Tensor numbers_;
};

constexpr std::array<std::string_view, AdamW::states> states{"exp_avg", "exp_avg_sq"};

}  // namespace

const UpdateRuleKind adamw_rule{
    .states = states,
    .table_bytes =
        [](std::int64_t shares, std::int64_t decay_spans) {
          return std::int64_t{sizeof(AdamW::Numbers)} + UpdateTables<AdamW::states>::bytes(shares, decay_spans);
        },
    .make = [](const OptimConfig& config, const Stream& stream, std::span<const UpdatedShare> shares, bool watched)
        -> std::unique_ptr<UpdateRule> { return std::make_unique<AdamWRule>(config, stream, shares, watched); }};

}  // namespace lyceum
