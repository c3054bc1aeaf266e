#include "emulated_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "core/error.h"
#include "expert_marks.h"
#include "model/ffn/expert_replicas.h"

namespace lyceum {

namespace {

/// Adds the seconds of its life to a sum, and the bytes that a group counts as sent in all-to-alls meanwhile.
class Added {
 public:
  Added(const ProcessGroup& group, double& seconds, std::int64_t& bytes)
      : group_(group), seconds_(seconds), bytes_(bytes), before_(group.traffic().all_to_all) {}
  ~Added() {
    seconds_ += seconds_since(start_);
    bytes_ += group_.traffic().all_to_all - before_;
  }
  Added(const Added&) = delete;
  Added& operator=(const Added&) = delete;

 private:
  const ProcessGroup& group_;
  double& seconds_;
  std::int64_t &bytes_, before_;
  Clock::time_point start_ = Clock::now();
};

Added added_to_weights(const ProcessGroup& group, EmulatedExperts::ReplicaUse& use) {
  return {group, use.time.weights, use.traffic.weights};
}

Added added_to_gradients(const ProcessGroup& group, EmulatedExperts::ReplicaUse& use) {
  return {group, use.time.gradients, use.traffic.gradients};
}

/// In the place of ReplicatedBank, whose order of transfers it keeps, or of GatedBank without replicas.
struct EmulatedBank {
  std::vector<ExpertBank::Expert> experts;  // of this rank, then replicas
  std::vector<std::int32_t> numbers;        // of the same; −1: an unused spare slot
  std::vector<std::int64_t> rows;           // of the same
  std::size_t own;                          // number of this rank's own experts
  std::shared_ptr<SpareSlots> slots;        // null without replicas
  std::shared_ptr<const ReplicaPlan> plan;
  const Placement* placement;
  double flops;  // of a forward pass
  EmulatedProcessor* processor;
  const ProcessGroup* group;
  std::int64_t step;  // whose weights the experts must have
  std::shared_ptr<EmulatedExperts::ReplicaUse> use;

  struct Saved {
    Tensor gates;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x, const Tensor& gates) const {
    saved.gates = gates;
    await_weights(stream);
    processor->compute(flops);
    return x;
  }
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
    await_weights(stream);
    processor->compute(flops);
    return {dy, Tensor::zeros(stream, saved.gates.dtype(), saved.gates.shape())};
  }
  std::vector<Parameter*> parameters() const {
    std::vector<Parameter*> all;
    for (std::size_t e = 0; e < own; ++e) {
      all.push_back(experts[e].in);
      all.push_back(experts[e].down);
    }
    return all;
  }
  void weight_grad(const Stream& stream, Saved&, const Tensor&) const {
    if (slots) {
      const Added added = added_to_gradients(*group, *use);
      slots->begin_gradients(stream, *plan);
    }
    for (std::size_t e = 0; e < experts.size(); ++e) {
      if (rows[e] == 0) continue;
      for (float* const element : marked_elements<float>(experts[e], &Parameter::gradient)) {
        *element += static_cast<float>(rows[e]);
      }
    }
    processor->compute(flops);
    if (!slots) return;
    const Added added = added_to_gradients(*group, *use);
    slots->return_gradients(stream, *plan, *placement);
  }
  void finish_weight_grad(const Stream& stream) const {
    if (!slots) return;
    const Added added = added_to_gradients(*group, *use);
    slots->finish_gradients(stream);
  }

 private:
  void await_weights(const Stream& stream) const {
    if (slots) {
      const Added added = added_to_weights(*group, *use);
      slots->await(stream, *plan, *placement, false);
    }
    for (std::size_t e = 0; e < experts.size(); ++e) {
      if (rows[e] > 0) check_marks(experts[e], step, numbers[e]);
    }
  }
};

}  // namespace

void EmulatedProcessor::compute(double flops) {
  const double seconds = flops / rate_;
  const auto start = Clock::now();
  std::this_thread::sleep_until(start +
                                std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
  wanted_ += seconds;
  taken_ += seconds_since(start);
}

EmulatedExperts::EmulatedExperts(const Mesh& mesh, const Stream& stream, DType type, const Sizes& sizes, int layer)
    : mesh_(&mesh),
      sizes_(sizes),
      unit_(fmt::format("experts of layer {}", layer), ParameterUnit::Group::expert, layer),
      placement_(Placement::contiguous(std::ssize(sizes.widths), mesh.expert.size())),
      type_(type),
      route_(present_route()) {
  require(type == DType::bf16, "emulated experts have weights in bf16");
  require_usage(std::ssize(sizes.widths) <= marked_experts, "{} experts: the weights of at most {} can be told apart",
                sizes.widths.size(), marked_experts);
  for (const std::int32_t e : placement_.experts_of(mesh.expert.rank())) {
    own_.push_back(make_expert(sizes.widths[static_cast<std::size_t>(e)], unit_));
  }
  for (const std::int64_t width : sizes.widths) {
    ParameterUnit slot("slot", ParameterUnit::Group::expert);
    make_expert(width, slot);
    elements_.push_back(slot.size());
  }
  if (sizes.replicas == 0) return;
  const SpareSlots::Experts experts{
      .widths = sizes_.widths,
      .elements = elements_,
      .originals = &unit_,
      .own = own_,
      .make = [this](std::int64_t width, ParameterUnit& slot) { return make_expert(width, slot); }};
  spare_ = std::make_shared<SpareSlots>(stream, type, mesh.expert, experts, sizes.replicas,
                                        most_lent_replicas(sizes.replicas, mesh.expert.size()));
  route_ = with_spare_slots(route_, mesh.expert_hops(), sizes.replicas);
}

ExpertBank::Expert EmulatedExperts::make_expert(std::int64_t width, ParameterUnit& unit) const {
  Parameter& in = unit.add(whole_parameter("in", {2 * width, sizes_.hidden}, 0.0, true));
  Parameter& down = unit.add(whole_parameter("down", {sizes_.hidden, width}, 0.0, true));
  return {.in = &in, .down = &down};
}

ExpertRoute EmulatedExperts::present_route() const {
  return route_of(placement_, mesh_->expert_hops(), {.k = sizes_.top_k, .choices = placement_.experts()});
}

void EmulatedExperts::mark_weights(std::int64_t step) {
  step_ = step;
  const std::span<const std::int32_t> numbers = placement_.experts_of(mesh_->expert.rank());
  for (std::size_t e = 0; e < own_.size(); ++e) set_marks(own_[e], step, numbers[e]);
}

void EmulatedExperts::check_weights() const {
  const std::span<const std::int32_t> numbers = placement_.experts_of(mesh_->expert.rank());
  for (std::size_t e = 0; e < own_.size(); ++e) check_marks(own_[e], step_, numbers[e]);
}

void EmulatedExperts::set_placement(const Placement& placement) {
  placement_ = placement;
  route_ = present_route();
  if (!spare_) return;
  spare_->forget();
  route_ = with_spare_slots(route_, mesh_->expert_hops(), sizes_.replicas);
}

void EmulatedExperts::forget_replicas() {
  if (spare_) spare_->forget();
}

EmulatedExperts::Routing EmulatedExperts::choose_replicas(const Stream& stream, const Tensor& index, Use& use) {
  if (!spare_) return {.index = index, .plan = nullptr};
  std::int64_t counts = 0;  // bytes of the numbers of rows, which are not those of replicas
  const Added added(mesh_->expert, replicas_->time.choosing, counts);
  const std::int64_t experts = placement_.experts();
  const NumberedChoices choices = numbered(stream, index, experts, experts);
  const std::vector<std::int32_t> rows = rows_of_sources(mesh_->expert, mesh_->expert_tensor, choices.rows(stream));
  ReplicaProblem problem = spare_->problem(placement_, rows, sizes_.host_ranks);
  const std::vector<std::int64_t> totals = problem.rows_of_experts(problem.sources());
  problem.totals = totals;
  auto plan = std::make_shared<const ReplicaPlan>(plan_replicas(problem));
  for (std::size_t slot = 0; slot < plan->experts.size(); ++slot) {
    if (plan->experts[slot] < 0) continue;
    const std::int64_t elements = elements_[static_cast<std::size_t>(plan->experts[slot])];
    ++use.replicas;
    use.gradient_bytes += elements * static_cast<std::int64_t>(size_of(accumulator_of(type_)));
    if (problem.held[slot] != plan->experts[slot]) {
      use.weight_bytes += elements * static_cast<std::int64_t>(size_of(type_));
    }
  }
  const std::vector<ReplicaShare> shares = shares_of_source(problem, *plan, mesh_->expert.rank());
  return {.index = divided(stream, choices, shares, experts), .plan = std::move(plan)};
}

Variable EmulatedExperts::forward(Tape& tape, const Variable& x, const Variable& gates, const Tensor& index,
                                  EmulatedProcessor& processor, std::optional<double> flops, Use& use) {
  tape.finish_weight_grads_here();  // as MoeLayer does
  const Routing routing = choose_replicas(tape.stream(), index, use);
  if (routing.plan) {
    const Added added = added_to_weights(mesh_->expert, *replicas_);
    spare_->send(tape.stream(), *routing.plan, placement_);
  }
  return answers(tape, routing, {.x = x, .gates = gates, .index = routing.index}, 0, processor, flops, use);
}

Variable EmulatedExperts::answers(Tape& tape, const Routing& routing, const TokensAndChoices& tokens, std::size_t hop,
                                  EmulatedProcessor& processor, std::optional<double> flops, Use& use) {
  if (hop < route_.hops.size()) {
    const auto exchange = plan_exchange(tape.stream(), route_.hops[hop], tokens.index);
    const TokensAndChoices here = dispatched(tape, exchange, tokens);
    return tape.apply(SumAnswers{exchange}, answers(tape, routing, here, hop + 1, processor, flops, use));
  }
  const auto rows = rows_of_experts(tape.stream(), route_, tokens);
  const std::span<const std::int64_t> counts = rows->segments->view().rows;
  const std::span<const std::int32_t> own = placement_.experts_of(mesh_->expert.rank());
  EmulatedBank bank{.experts = routing.plan ? spare_->bank(*routing.plan) : own_,
                    .numbers = {own.begin(), own.end()},
                    .rows = {counts.begin(), counts.end()},
                    .own = own_.size(),
                    .slots = routing.plan ? spare_ : nullptr,
                    .plan = routing.plan,
                    .placement = &placement_,
                    .flops = 0,
                    .processor = &processor,
                    .group = &mesh_->expert,
                    .step = step_,
                    .use = replicas_};
  if (routing.plan) {
    const auto first = routing.plan->experts.begin() + mesh_->expert.rank() * sizes_.replicas;
    bank.numbers.insert(bank.numbers.end(), first, first + sizes_.replicas);
  }
  for (std::size_t e = 0; e < bank.numbers.size(); ++e) {
    if (bank.rows[e] == 0) continue;
    require(bank.numbers[e] >= 0, "{} rows of an unused spare slot", bank.rows[e]);
    use.flops += static_cast<double>(bank.rows[e]) * sizes_.flops(static_cast<std::size_t>(bank.numbers[e]));
  }
  bank.flops = flops.value_or(use.flops);
  return tape.apply(std::move(bank), tokens.x, tokens.gates);
}

void EmulatedExperts::check_gradients(std::span<const std::int64_t> tokens) const {
  const std::span<const std::int32_t> numbers = placement_.experts_of(mesh_->expert.rank());
  for (std::size_t e = 0; e < own_.size(); ++e) {
    const std::int64_t expected = tokens[static_cast<std::size_t>(numbers[e])];
    for (const float* const element : marked_elements<float>(own_[e], &Parameter::gradient)) {
      const auto counted = static_cast<std::int64_t>(*element);
      require(counted == expected, "the gradient of expert {} counts {} tokens of {}", numbers[e], counted, expected);
    }
  }
}

}  // namespace lyceum
