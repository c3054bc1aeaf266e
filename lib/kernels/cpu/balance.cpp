#include "kernels/balance.h"

#include <algorithm>
#include <cmath>

#include "kernels/balance_checks.h"

namespace lyceum {

namespace {

/// Sums over sequences, without the factors α.
struct Losses {
  double expert = 0, device = 0, squares = 0, entropies = 0, of_mean = 0;  // of_mean: H(P)
};

/// Returns H(P) of one sequence and writes its derivatives −(log P + 1) / T. Both are 0 for an expert with P = 0, to
/// which no token gives a probability.
double entropy_of_mean(const BalanceLosses& balance, std::int64_t s, double counted) {
  const auto tokens = static_cast<double>(balance.seq_len);
  double entropy = 0;
  for (std::int64_t i = 0; i < balance.probability.cols; ++i) {
    const double p = balance.probability.row(s)[i] / (tokens * counted), log_p = p == 0 ? 0 : std::log(p);
    entropy -= p * log_p;
    balance.entropy_slope.row(s)[i] = p == 0 ? 0 : -(log_p + 1) / tokens;
  }
  return entropy;
}

/// Adds the losses of one sequence and writes its derivatives.
void add_sequence(const BalanceLosses& balance, std::int64_t s, Losses& losses) {
  const std::int64_t experts = balance.count.cols;
  const auto tokens = static_cast<double>(balance.seq_len);
  const double counted = balance.count_of.empty() ? 1 : balance.count_of[0];
  const double k = balance.choices.empty() ? static_cast<double>(balance.top_k) : balance.choices[0];
  const double scale = static_cast<double>(experts) / (k * tokens * counted);
  const double* count = balance.count.row(s);
  const double* sum = balance.sums.row(s);
  for (std::size_t device = 0; device + 1 < balance.first.size(); ++device) {
    const auto begin = static_cast<std::size_t>(balance.first[device]);
    const std::span held = balance.order.subspan(begin, static_cast<std::size_t>(balance.first[device + 1]) - begin);
    double mean_f = 0, sum_p = 0;
    for (const std::int32_t i : held) {
      const double f = scale * count[i], p = sum[i] / tokens;
      losses.expert += f * p;
      balance.expert_slope.row(s)[i] = balance.expert_factor * f / tokens;
      mean_f += f / static_cast<double>(held.size());
      sum_p += p;
    }
    losses.device += mean_f * sum_p;
    for (const std::int32_t i : held) balance.device_slope.row(s)[i] = balance.device_factor * mean_f / tokens;
  }
  losses.squares += sum[experts];
  losses.entropies += sum[experts + 1];
  losses.of_mean += entropy_of_mean(balance, s, counted);
}

double value_or_zero(std::span<const double> value) { return value.empty() ? 0 : value[0]; }

}  // namespace

void run(const CpuStream&, const BalanceLosses& balance) {
  require_fitting(balance);
  Losses losses;
  for (std::int64_t s = 0; s < balance.count.rows; ++s) add_sequence(balance, s, losses);
  balance.expert_loss[0] = balance.expert_factor * losses.expert;
  balance.device_loss[0] = balance.device_factor * losses.device;
  balance.z_loss[0] = balance.z_factor / static_cast<double>(balance.seq_len) * losses.squares;
  balance.information_loss[0] =
      balance.information_factor * (losses.entropies / static_cast<double>(balance.seq_len) - losses.of_mean);
  balance.concentration_loss[0] = balance.concentration_factor * losses.of_mean;
}

void run(const CpuStream&, const BalanceLossesBackward& balance) {
  require_fitting(balance);
  const std::int64_t experts = balance.expert_slope.cols;
  const double by_expert = value_or_zero(balance.by_expert), by_device = value_or_zero(balance.by_device);
  const double by_square = balance.z_slope * value_or_zero(balance.by_z),
               by_information = value_or_zero(balance.by_information);
  const double by_entropy = balance.information_slope * by_information;
  const double by_mean = balance.concentration_factor * value_or_zero(balance.by_concentration) -
                         balance.information_factor * by_information;
  for (std::int64_t s = 0; s < balance.d_load.rows; ++s) {
    const double* expert = balance.expert_slope.row(s);
    const double* device = balance.device_slope.row(s);
    double* d_load = balance.d_load.row(s);
    std::fill_n(d_load, experts, 0.0);
    for (std::int64_t i = 0; i < experts; ++i) d_load[experts + i] = by_expert * expert[i] + by_device * device[i];
    for (std::int64_t i = 0; i < balance.entropy_slope.cols; ++i) {
      d_load[experts + i] += by_mean * balance.entropy_slope.row(s)[i];
    }
    d_load[2 * experts] = by_square;
    d_load[2 * experts + 1] = by_entropy;
  }
}

}  // namespace lyceum
