#include "expert_remedies.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/copy.h"
#include "core/random.h"
#include "kernels/tensor_kernels.h"
#include "parallel/expert/rebalance.h"

namespace lyceum {

namespace {

constexpr DType type = DType::bf16;
constexpr double gain = 0.05;  // default of parallel.replace_gain

/// Returns the CPU seconds of this process so far.
double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

std::vector<std::int64_t> widths_of(const RoutingLoad& load, std::int64_t mean) {
  std::vector<std::int64_t> widths;
  for (const double size : load.sizes) {
    const double width = size / load.mean_size() * static_cast<double>(mean);
    widths.push_back(std::max<std::int64_t>(1, std::llround(width)));
  }
  return widths;
}

TokenShape tokens_of(const StepShape& shape, const ProcessGroup& group) {
  return {.tokens = shape.tokens, .micro_batches = shape.micro_batches, .ranks = group.size(), .rank = group.rank()};
}

RemediedExperts::RemediedExperts(const Mesh& mesh, const Stream& stream, const Remedy& remedy, const RoutingLoad& load,
                                 const StepShape& shape)
    : mesh_(mesh),
      stream_(stream),
      remedy_(remedy),
      shape_(shape),
      top_k_(load.top_k),
      processor_(shape.rate),
      sizes_{.hidden = shape.hidden,
             .top_k = load.top_k,
             .widths = widths_of(load, shape.widths),
             .replicas = remedy.replicas,
             .host_ranks = shape.host_ranks},
      mover_(mesh, stream) {
  std::vector<ParameterUnit*> units;
  for (std::int64_t l = 0; l < load.layers; ++l) {
    layers_.push_back(std::make_unique<EmulatedExperts>(mesh, stream, type, sizes_, static_cast<int>(l)));
    units.push_back(&layers_.back()->unit());
  }
  zero_ =
      std::make_unique<Zero>(units, mesh, stream, Zero::Options{.micro_batches = shape.micro_batches, .type = type});
  optimizer_ = std::make_unique<Optimizer>(OptimConfig{}, mesh, stream, zero_->shares());
  for (const std::int64_t width : sizes_.widths) kinds_.push_back(static_cast<int>(width));
  const auto normal = [&](const char* name, std::int64_t columns) {
    std::vector<float> values(static_cast<std::size_t>(shape.tokens * columns));
    fill_normal(values, 1.0, Philox(1, name), 0);
    return tensor_of(stream, {shape.tokens, columns}, values);
  };
  const auto rounded = [&](const Tensor& values) {
    const Tensor y = Tensor::empty(stream, type, values.shape());
    convert(stream, values, y);
    return y;
  };
  x_ = rounded(normal("x", shape.hidden));
  dy_ = rounded(normal("dy", shape.hidden));
  gates_ = normal("gates", top_k_);
}

MoveResult RemediedExperts::move(const RoutingLoad& load, std::int64_t step) {
  std::vector<std::vector<double>> costs(layers_.size(), std::vector<double>(sizes_.widths.size()));
  for (std::int64_t s = step - shape_.every; s < step; ++s) {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const auto counts = counts_of_step(load, tokens_of(shape_, mesh_.expert), static_cast<std::int64_t>(l), s);
      for (std::size_t e = 0; e < counts.size(); ++e) {
        costs[l][e] += static_cast<double>(counts[e] * sizes_.widths[e]);
      }
    }
  }
  MoveResult result;
  std::array<std::int64_t, 2> bytes{-mover_.traffic().all_to_all, 0};
  mesh_.world.barrier();
  const auto start = Clock::now();
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    EmulatedExperts& layer = *layers_[l];
    const std::optional<Placement> after = better_placement(layer.placement(), costs[l], kinds_, gain);
    if (!after) continue;
    const ExpertMover::Move move{
        .unit = layer.unit(), .slot_elements = layer.elements(), .before = layer.placement(), .after = *after};
    bytes[1] += mover_.bytes_sent(*optimizer_, move);
    result.experts += std::ssize(moved_experts(layer.placement(), *after));
    mover_.move(*optimizer_, move);
    layer.set_placement(*after);
  }
  std::array<double, 1> seconds{seconds_since(start)};
  bytes[0] += mover_.traffic().all_to_all;
  mesh_.world.all_reduce(std::span(seconds), Reduction::max);
  mesh_.world.all_reduce(std::span(bytes));
  result.seconds = seconds[0];
  result.bytes = bytes[0];
  result.planned_bytes = bytes[1];
  require(result.bytes == result.planned_bytes, "moves sent {} bytes, planned were {}", result.bytes,
          result.planned_bytes);
  return result;
}

RemediedExperts::Choices RemediedExperts::tensors_of(const RoutedStep& routed) const {
  Choices all(routed.choices.size());
  for (std::size_t m = 0; m < all.size(); ++m) {
    for (const std::vector<std::int32_t>& choices : routed.choices[m]) {
      all[m].push_back(tensor_of(stream_, {shape_.tokens, top_k_}, choices));
    }
  }
  return all;
}

void RemediedExperts::pass(const std::vector<Tensor>& choices, const std::vector<double>& flops,
                           std::vector<EmulatedExperts::Use>& uses) {
  Tape tape(stream_);
  tape.on_gradient_final([&](Parameter& parameter) { zero_->gradient_final(parameter); });
  Variable x = tape.leaf(x_);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const std::optional<double> fixed = remedy_.forced_balance ? std::optional(flops[l]) : std::nullopt;
    x = layers_[l]->forward(tape, x, tape.leaf(gates_), choices[l], processor_, fixed, uses.emplace_back());
    if (fixed) uses.back().flops = *fixed;
  }
  tape.backward({{x, dy_}});
}

StepResult RemediedExperts::run(const RoutedStep& routed, const std::vector<std::vector<double>>& flops,
                                std::int64_t step) {
  const Choices choices = tensors_of(routed);
  for (const auto& layer : layers_) {
    if (marked_) layer->check_weights();
    layer->mark_weights(step);
  }
  optimizer_->adopt_weights();
  marked_ = step;
  StepResult result;
  std::vector<EmulatedExperts::Use> uses;
  const auto count = [&](int sign) {
    result.cpu_seconds += sign * cpu_seconds();
    result.row_bytes += sign * sent_rows();
    for (const auto& layer : layers_) {
      result.weight_bytes += sign * layer->replica_traffic().weights;
      result.gradient_bytes += sign * layer->replica_traffic().gradients;
      result.replica_time.choosing += sign * layer->replica_time().choosing;
      result.replica_time.weights += sign * layer->replica_time().weights;
      result.replica_time.gradients += sign * layer->replica_time().gradients;
    }
  };
  mesh_.world.barrier();
  count(-1);
  const auto start = Clock::now();
  for (const auto& layer : layers_) layer->forget_replicas();
  for (std::size_t m = 0; m < choices.size(); ++m) pass(choices[m], flops[m], uses);
  zero_->finish_gradients();
  result.seconds = seconds_since(start);
  count(1);
  result = summed(result, uses);
  check(routed, result);
  return result;
}

std::int64_t RemediedExperts::sent_rows() const {
  std::int64_t bytes = 0;
  for (const ProcessGroup* const hop : mesh_.expert_hops()) bytes += hop->traffic().all_to_all;
  if (mesh_.expert_hosts) return bytes;  // replicas travel in another group
  for (const auto& layer : layers_) bytes -= layer->replica_traffic().weights + layer->replica_traffic().gradients;
  return bytes;
}

/// Collective. Returns the result of all ranks.
StepResult RemediedExperts::summed(StepResult own, const std::vector<EmulatedExperts::Use>& uses) const {
  std::vector<double> sum, most{own.seconds};
  for (const EmulatedExperts::Use& use : uses) {
    sum.push_back(use.flops);
    most.push_back(use.flops);
    own.planned_weight_bytes += use.weight_bytes;
    own.planned_gradient_bytes += use.gradient_bytes;
    own.replicas += use.replicas;
  }
  const std::array means{&own.lateness, &own.replica_time.choosing, &own.replica_time.weights,
                         &own.replica_time.gradients};
  own.lateness = processor_.lateness();
  for (const double* const value : means) sum.push_back(*value);
  sum.push_back(own.cpu_seconds);
  std::array<std::int64_t, 3> bytes{own.row_bytes, own.weight_bytes, own.gradient_bytes};
  mesh_.world.all_reduce(std::span(sum));
  mesh_.world.all_reduce(std::span(most), Reduction::max);
  mesh_.world.all_reduce(std::span(bytes));
  own.seconds = most[0];
  own.imbalance = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    own.imbalance += most[i + 1] / sum[i] * mesh_.world.size() / static_cast<double>(uses.size());
  }
  for (std::size_t i = 0; i < means.size(); ++i) *means[i] = sum[uses.size() + i] / mesh_.world.size();
  own.cpu_seconds = sum.back();
  own.row_bytes = bytes[0];
  own.weight_bytes = bytes[1];
  own.gradient_bytes = bytes[2];
  return own;
}

/// Throws an Error if replicas sent other bytes than planned, or if experts did not receive the tokens that chose them.
void RemediedExperts::check(const RoutedStep& routed, const StepResult& result) const {
  require(result.weight_bytes == result.planned_weight_bytes && result.gradient_bytes == result.planned_gradient_bytes,
          "replicas sent {} and {} bytes of weights and gradients, planned were {} and {}", result.weight_bytes,
          result.gradient_bytes, result.planned_weight_bytes, result.planned_gradient_bytes);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    std::vector<std::int64_t> tokens(sizes_.widths.size());
    for (const auto& micro_batch : routed.counts) {
      for (std::size_t e = 0; e < tokens.size(); ++e) tokens[e] += micro_batch[l][e];
    }
    layers_[l]->check_gradients(tokens);
  }
}

}  // namespace lyceum
