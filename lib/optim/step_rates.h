#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "config/optim.h"
#include "core/copy.h"
#include "core/device_table.h"
#include "kernels/adamw.h"

namespace lyceum {

/// The learning rate and AdamW's bias corrections of a step, in device memory.
class StepRates {
 public:
  StepRates(const Stream& stream, const OptimConfig& config)
      : stream_(stream), config_(config), numbers_(table_of(stream, std::vector<AdamW::Numbers>(1))) {}

  /// Uploads the numbers of update `n`, counted from 1.
  void upload(double lr, std::int64_t n) const {
    const auto power = static_cast<double>(n);
    const AdamW::Numbers known{.lr = lr,
                               .rate = lr / (1 - std::pow(config_.beta1, power)),
                               .inverse_bias2 = 1 / (1 - std::pow(config_.beta2, power)),
                               .update = n};
    copy_to_device(stream_, numbers_.raw(), &known, sizeof known);
  }
  std::span<const AdamW::Numbers> numbers() const { return rows_of<AdamW::Numbers>(numbers_); }
  /// Returns [1]: the number of the update, in device memory.
  std::span<const std::int64_t> update() const { return {&numbers().data()->update, 1}; }
  /// Returns AdamW with these numbers, which it reads when it is run.
  AdamW adamw() const {
    return {.beta1 = config_.beta1, .beta2 = config_.beta2, .eps = config_.eps, .numbers = numbers()};
  }

 private:
  Stream stream_;
  OptimConfig config_;
  Tensor numbers_;
};

}  // namespace lyceum
