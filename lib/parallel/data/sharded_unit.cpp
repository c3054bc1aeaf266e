#include "parallel/data/sharded_unit.h"

#include <numeric>

#include "autograd/adapters.h"
#include "core/copy.h"
#include "kernels/tensor_kernels.h"

namespace lyceum {
namespace {

/// sum += term
void add(const Stream& stream, const Tensor& sum, const Tensor& term) {
  dispatch_accumulator(sum.dtype(), [&]<class A>() {
    launch(stream, Add<A>{.a = sum.span<A>(), .b = term.span<A>(), .y = sum.span<A>()});
  });
}

}  // namespace

ShardedUnit::ShardedUnit(ParameterUnit& unit, const CopyGroups& groups, const Plan& plan, Stream stream)
    : unit_(unit),
      groups_(groups),
      plan_(unit.trained() || plan.stage == 3 ? plan : Plan{0, plan.micro_batches, plan.type}),
      stream_(std::move(stream)),
      size_(padded_for_ranks(unit.size(), groups.reductions.size())),
      extents_(cut_evenly(size_, groups.reductions.size())) {
  const auto self = static_cast<std::size_t>(groups.reductions.rank());
  owned_ = {std::accumulate(extents_.begin(), extents_.begin() + groups.reductions.rank(), std::int64_t{0}),
            extents_[self]};
  values_ = Tensor::zeros(stream_, plan_.type, {shards(3) ? owned_.count : size_}, MemoryKind::weights);
  if (!frees_values()) unit_.set_values(values_);
  if (!unit_.trained()) return;
  const DType sums = accumulator_of(plan_.type);
  if (!shards(2)) unit_.set_gradients(Tensor::zeros(stream_, sums, {size_}, MemoryKind::gradients));
  sum_ =
      shards(2) ? Tensor::zeros(stream_, sums, {owned_.count}, MemoryKind::gradients) : owned_part(unit_.gradients());
}

ShardedUnit::~ShardedUnit() {
  unit_.set_values({});
  unit_.set_gradients({});
}

UnitShare ShardedUnit::share() const {
  const bool part = shards(1);
  return {.unit = &unit_,
          .copies = &groups_.reductions,
          .owned = owned_,
          .updated = part ? owned_ : Range{0, size_},
          .size = size_,
          .sharded = part,
          .values = part && !shards(3) ? owned_part(values_) : values_,
          .gradients = part ? sum_ : unit_.gradients()};
}

void ShardedUnit::initialize(std::uint64_t seed) {
  release_values();
  unit_.initialize(stream_, seed, shards(3) ? owned_.first : 0, values_);
}

void ShardedUnit::start_gather() {
  if (!shards(3) || unit_.values().defined()) return;
  const Tensor whole = Tensor::empty(stream_, plan_.type, {size_}, MemoryKind::weights);
  gather_ = groups_.gathers.all_gather_async(values_, whole, extents_);
  unit_.set_values(whole);
}

void ShardedUnit::await_values() {
  start_gather();
  gather_.wait();
  if (!unit_.adapted() || adapted_) return;
  if (!shards(3)) {
    const Tensor whole = Tensor::empty(stream_, plan_.type, {size_}, MemoryKind::weights);
    copy_on_device(stream_, whole.raw(), values_.raw(), values_.bytes());
    unit_.set_values(whole);
  }
  add_adapters(stream_, unit_);
  adapted_ = true;
}

void ShardedUnit::release_values() {
  if (!frees_values()) return;
  gather_.wait();
  unit_.set_values({});
  adapted_ = false;
}

void ShardedUnit::values_changed() {
  gather_.wait();
  release_values();
  if (shards(1) && !shards(3)) gather_ = groups_.gathers.all_gather_async(owned_part(values_), values_, extents_);
}

void ShardedUnit::begin_gradients() {
  if (producing_) return;
  finish_reduction();
  const bool temporary = unit_.adapted() || shards(2);
  if (temporary) {
    unit_.set_gradients(Tensor::empty(stream_, accumulator_of(plan_.type), {size_}, MemoryKind::gradients));
  }
  if (temporary || complete_ == 0) unit_.begin_gradients(stream_);
  producing_ = true;
}

bool ShardedUnit::count_final_parameter(Parameter& parameter) {
  begin_gradients();  // a micro-batch may contribute nothing; its gradient is zero
  parameter.clear_empty_gradient(stream_);
  require(complete_ < plan_.micro_batches, "gradients of {} became final more than {} times in one step", unit_.name(),
          plan_.micro_batches);
  if (++final_parameters_ < std::ssize(unit_.parameters())) return false;
  final_parameters_ = 0;
  ++complete_;
  const bool reduces = copies() > 1 && (shards(2) || complete_ == plan_.micro_batches);
  if (unit_.adapted() || reduces) {  // they read the whole unit
    for (const auto& each : unit_.parameters()) each->clear_empty_gradient(stream_);
  }
  if (unit_.adapted()) return true;
  producing_ = false;
  if (!reduces) return false;
  reducing_ = true;
  const Tensor& whole = unit_.gradients();
  reduction_ = groups_.reductions.reduce_scatter_async(whole, owned_part(whole), extents_);
  return true;
}

void ShardedUnit::free_gradients() {
  unit_.set_gradients({});
  producing_ = false;
}

void ShardedUnit::finish_reduction() {
  if (!reducing_) return;
  reduction_.wait();
  reducing_ = false;
  const Tensor part = owned_part(unit_.gradients());
  if (shards(2)) {
    summed_micro_batches_++ == 0 ? convert(stream_, part, sum_) : add(stream_, sum_, part);
    unit_.set_gradients({});
  } else if (plan_.stage == 0) {
    gradient_gather_ = groups_.gathers.all_gather_async(part, unit_.gradients(), extents_);
  }
}

void ShardedUnit::finish_step() {
  if (!unit_.trained() && !unit_.adapted()) return;
  finish_reduction();
  require(complete_ == plan_.micro_batches && !producing_,
          "gradients of {} became final {} times in a step of {} micro-batches", unit_.name(), complete_,
          plan_.micro_batches);
  gradient_gather_.wait();
  complete_ = summed_micro_batches_ = 0;
}

}  // namespace lyceum
