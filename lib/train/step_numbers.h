#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/copy.h"
#include "core/tensor.h"
#include "kernels/adamw.h"

namespace lyceum {

/// What a step tells the host, and what its update goes by, in one piece where the model computes: read back once, when
/// everything has been launched.
class StepNumbers {
 public:
  /// `layers`: of the whole model.
  StepNumbers(const Stream& stream, std::int64_t layers)
      : all_(Tensor::zeros(stream, DType::f64, {losses_first + 1 + 3 * layers}, MemoryKind::buffers)) {}

  std::span<AdamWNumbers> update() const { return {reinterpret_cast<AdamWNumbers*>(all_.data<double>()), 1}; }
  /// Weighted sums: cross-entropy, then three kinds of balance loss for every layer of the whole model, so that their
  /// sum has one order whatever the stages.
  Tensor losses() const { return all_.slice(losses_first, all_.size() - losses_first); }
  /// Cross-entropy of this rank's tokens alone.
  std::span<double> own_loss() const { return all_.span<double>().subspan(update_count, 1); }
  std::span<double> gradient_norm() const { return all_.span<double>().subspan(update_count + 1, 1); }
  /// Of weights, and of what was taken from them.
  std::span<double> weight_norms() const { return all_.span<double>().subspan(update_count + 2, 2); }

  struct Values {
    bool skipped;
    double own_loss, gradient_norm, weight_norm, update_norm;
    std::vector<double> losses;
  };
  /// Waits for all work of the stream.
  Values read(const Stream& stream) const {
    const std::vector<double> all = values_of<double>(stream, all_);
    const double* norms = all.data() + update_count;
    return {.skipped = norms[-1] != 0,  // AdamWNumbers::skip
            .own_loss = norms[0],
            .gradient_norm = norms[1],
            .weight_norm = norms[2],
            .update_norm = norms[3],
            .losses = {all.begin() + losses_first, all.end()}};
  }

 private:
  static constexpr std::int64_t update_count = sizeof(AdamWNumbers) / sizeof(double);
  static constexpr std::int64_t losses_first = update_count + 4;
  Tensor all_;
};

}  // namespace lyceum
