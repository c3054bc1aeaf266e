#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/copy.h"
#include "core/tensor.h"
#include "kernels/adamw.h"

namespace lyceum {

/// What a step reports to the host, and what its update uses, in one piece where the model computes: read back once,
/// when everything has been launched.
class StepNumbers {
 public:
  /// The gradient's norm; cross-entropy; each loss that sub-layers give for every layer of the whole model, so that its
  /// sum has one order whatever the stages.
  class Table {
   public:
    explicit Table(Tensor all) : all_(std::move(all)) {}
    const Tensor& all() const { return all_; }
    std::span<double> norm() const { return all_.span<double>().first(1); }
    std::span<double> loss() const { return all_.span<double>().subspan(1, 1); }
    std::span<double> losses() const { return all_.span<double>().subspan(1); }  // all of them

   private:
    Tensor all_;
  };

  /// `losses`: numbers of sub-layers, kinds times layers.
  StepNumbers(const Stream& stream, std::int64_t losses)
      : table_(2 + losses), all_(Tensor::zeros(stream, DType::f64, {own_first + 2 * table_}, MemoryKind::buffers)) {}

  /// Of the step, counted from 0, and the experts that a token chooses in it: f64 [1] each, see Pass. What a token's
  /// loss counts: one over the targets of the global batch that count, 0 where there are none.
  Tensor step() const { return all_.slice(step_place, 1); }
  Tensor choices() const { return all_.slice(step_place + 1, 1); }
  std::span<const double> loss_weight() const { return all_.span<double>().subspan(step_place + 2, 1); }
  void set_step(const Stream& stream, std::int64_t step, std::int64_t choices, std::int64_t targets) const {
    const std::array numbers{static_cast<double>(step), static_cast<double>(choices),
                             targets > 0 ? 1.0 / static_cast<double>(targets) : 0.0};
    copy_to_device(stream, all_.span<double>().subspan(step_place, numbers.size()), std::span<const double>(numbers));
  }
  std::span<AdamWNumbers> update() const { return {reinterpret_cast<AdamWNumbers*>(all_.data<double>()), 1}; }
  /// Of weights, and of what was taken from them.
  std::span<double> weight_norms() const { return all_.span<double>().subspan(update_count, 2); }
  /// What this rank made: losses are weighted sums over its tokens.
  Table own() const { return Table(all_.slice(own_first, table_)); }
  /// What all ranks agreed on.
  Table agreed() const { return Table(all_.slice(own_first + table_, table_)); }

  struct Values {
    bool skipped;
    double own_gradient_norm, own_loss;
    double gradient_norm, weight_norm, update_norm;
    std::vector<double> losses;
  };
  /// Waits for all work of the stream.
  Values read(const Stream& stream) const {
    const std::vector<double> all = values_of<double>(stream, all_);
    const double *own = all.data() + own_first, *agreed = own + table_;
    return {.skipped = all[update_count - 1] != 0,  // AdamWNumbers::skip
            .own_gradient_norm = own[0],
            .own_loss = own[1],
            .gradient_norm = agreed[0],
            .weight_norm = all[update_count],
            .update_norm = all[update_count + 1],
            .losses = {agreed + 1, agreed + table_}};
  }

 private:
  static constexpr std::int64_t update_count = sizeof(AdamWNumbers) / sizeof(double);
  static constexpr std::int64_t step_place = update_count + 2, own_first = step_place + 3;
  std::int64_t table_;
  Tensor all_;
};

}  // namespace lyceum
