#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <tuple>
#include <vector>

#include "core/copy.h"
#include "core/device_table.h"
#include "core/tensor.h"
#include "kernels/weight_update.h"
#include "model/loss_kind.h"

namespace lyceum {

/// The largest loss and the largest gradient norm with which a step updates the weights. Infinite: no limit.
struct StepLimits {
  double loss = std::numeric_limits<double>::infinity(), norm = std::numeric_limits<double>::infinity();
};

/// The numbers of one training step, in device memory: the inputs of the step, the sums of its passes, the sums that
/// all ranks agree on, and the verdict. The host reads them once, after everything was launched.
class StepNumbers {
 public:
  /// The sums of one rank, or those on which all ranks agree: f64 [2 + LossTable::size()], the norm of the gradient,
  /// the cross-entropy, and the losses of sub-layers in the order of the LossTable. The norm is that of the whole
  /// model, also in the sums of one rank: it is that rank's copy.
  class Sums {
   public:
    explicit Sums(Tensor all) : all_(std::move(all)) {}
    static std::int64_t size(const LossTable& losses) { return 2 + losses.size(); }
    const Tensor& all() const { return all_; }
    std::span<double> norm() const { return all_.span<double>().first(1); }
    std::span<double> cross_entropy() const { return all_.span<double>().subspan(1, 1); }
    /// [LossTable::size()]
    std::span<double> layer_losses() const { return all_.span<double>().subspan(2); }
    /// Cross-entropy, then the losses of sub-layers: [1 + LossTable::size()]
    std::span<double> losses() const { return all_.span<double>().subspan(1); }

   private:
    Tensor all_;
  };

  /// `layers`: number of layers of units, see ParameterUnit::layer().
  StepNumbers(const Stream& stream, LossTable losses, int layers)
      : losses_(std::move(losses)),
        size_(Sums::size(losses_)),
        layers_(static_cast<std::size_t>(layers)),
        all_(Tensor::zeros(stream, DType::f64, {count(losses_, layers)}, MemoryKind::buffers)),
        verdict_(table_of(stream, std::vector<StepVerdict>(1))) {}

  /// Returns the size in device memory.
  static std::int64_t bytes(const LossTable& losses, int layers) {
    return count(losses, layers) * std::int64_t{sizeof(double)} + std::int64_t{sizeof(StepVerdict)};
  }
  const LossTable& loss_table() const { return losses_; }

  /// Return the step, counted from 0, and the number of experts that a token chooses in it: f64 [1] each, see Pass.
  Tensor step() const { return all_.slice(step_offset, 1); }
  Tensor choices() const { return all_.slice(step_offset + 1, 1); }
  /// Returns the weight of the loss of one target: 1 / number of targets of the global batch that count, or 0 if there
  /// are none. [1]
  std::span<const double> loss_weight() const { return all_.span<double>().subspan(step_offset + 2, 1); }
  /// Returns the StepLimits: loss, norm. [2]
  std::span<const double> limits() const { return all_.span<double>().subspan(step_offset + 3, 2); }

  /// The numbers of a step that are known before its passes.
  struct Inputs {
    std::int64_t step;     // counted from 0
    std::int64_t choices;  // experts that a token chooses
    std::int64_t targets;  // targets of the global batch that count
    StepLimits limits = {};
  };
  /// Uploads the inputs of the next step.
  void set_step(const Stream& stream, const Inputs& inputs) const {
    const std::array numbers{static_cast<double>(inputs.step), static_cast<double>(inputs.choices),
                             inputs.targets > 0 ? 1.0 / static_cast<double>(inputs.targets) : 0.0, inputs.limits.loss,
                             inputs.limits.norm};
    static_assert(std::tuple_size_v<decltype(numbers)> == input_count);
    copy_to_device(stream, all_.span<double>().subspan(step_offset, numbers.size()), std::span<const double>(numbers));
  }
  /// [1]
  std::span<StepVerdict> verdict() const { return writable_rows_of<StepVerdict>(verdict_); }
  /// Returns the norms of the weights after the update, and of the update. [2]
  std::span<double> weight_norms() const { return all_.span<double>().first(2); }
  /// Return the norms of the layers' gradients, [layers], and of their weights and updates, [2, layers].
  std::span<double> layer_gradient_norms() const { return all_.span<double>().last(3 * layers_).first(layers_); }
  std::span<double> layer_weight_norms() const { return all_.span<double>().last(2 * layers_); }
  /// Returns the sums of this rank. Losses of the head are summed over its tokens and weighted by loss_weight(), and
  /// those of LossKind also by their factors; the losses of routers are summed over its sequences and divided by the
  /// number of sequences of the global batch.
  Sums own() const { return Sums(all_.slice(own_first, size_)); }
  /// Returns the sums on which all ranks agree.
  Sums agreed() const { return Sums(all_.slice(own_first + size_, size_)); }

  /// Copies of the numbers on the host. Cross-entropy is in nats per target. The two `own_` numbers are those of this
  /// rank's sums, see own(): `own_gradient_norm` also is the norm of the whole model, and differs from that of other
  /// ranks only after a fault of memory or network.
  struct Values {
    bool skipped;
    bool outlier;  // skipped because loss or norm was above its limit
    double own_gradient_norm, own_cross_entropy;
    double gradient_norm, weight_norm, update_norm;
    double cross_entropy;
    std::vector<double> layer_losses;                              // in the order of the LossTable
    std::vector<double> layer_gradient_norms, layer_weight_norms;  // [layers]
  };
  /// Copies the numbers to the host. Waits for all work in the stream.
  Values read(const Stream& stream) const {
    const std::vector<double> all = values_of<double>(stream, all_);
    StepVerdict verdict{};
    copy_to_host(stream, &verdict, verdict_.raw(), sizeof verdict);
    const double *own = all.data() + own_first, *agreed = own + size_, *of_layers = agreed + size_;
    const double* const weights_of_layers = of_layers + layers_;
    return {.skipped = verdict.skip != 0,
            .outlier = verdict.skip == StepVerdict::outlier,
            .own_gradient_norm = own[0],
            .own_cross_entropy = own[1],
            .gradient_norm = agreed[0],
            .weight_norm = all[0],
            .update_norm = all[1],
            .cross_entropy = agreed[1],
            .layer_losses = {agreed + 2, agreed + size_},
            .layer_gradient_norms = {of_layers, weights_of_layers},
            .layer_weight_norms = {weights_of_layers, weights_of_layers + layers_}};
  }

 private:
  static constexpr std::int64_t step_offset = 2, input_count = 5, own_first = step_offset + input_count;
  static std::int64_t count(const LossTable& losses, int layers) {
    return own_first + 2 * Sums::size(losses) + 3 * layers;
  }

  LossTable losses_;
  std::int64_t size_;  // size of Sums
  std::size_t layers_;
  Tensor all_;  // weight norms; inputs; own sums; agreed sums; norms of layers
  Tensor verdict_;
};

}  // namespace lyceum
