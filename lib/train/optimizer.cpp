#include "train/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/copy.h"
#include "core/device_table.h"
#include "kernels/elementwise.h"
#include "train/audit.h"
#include "train/finding.h"

namespace lyceum {

namespace {

/// A box of a logical tensor in a unit's flat memory: rows of the last dimension from element `first` on, one each
/// `pitch` elements.
struct HeldBox {
  Box box;
  std::int64_t first, pitch;

  std::int64_t columns() const { return box.extent[box.extent.rank() - 1]; }
  std::int64_t rows() const { return box.extent.size() / columns(); }
  bool contiguous() const { return pitch == columns() || rows() == 1; }
  /// Elements from the first to the last.
  std::int64_t span() const { return (rows() - 1) * pitch + columns(); }
};

/// Calls f(piece, held) for the boxes of logical tensors that a range of the unit's flat memory holds.
template <class F>
void for_each_box(const ParameterUnit& unit, const Range& range, F&& f) {
  for (std::size_t p = 0; p < unit.parameters().size(); ++p) {
    for (const ParameterPiece& piece : unit.parameters()[p]->pieces) {
      const Shape in_memory = piece.in_memory();
      const Range whole{unit.first_of(p) + piece.first, in_memory.size()};
      const Range part = common(whole, range);
      const int last = in_memory.rank() - 1;
      std::int64_t next = part.first;
      for (Box& box : boxes_of_range(in_memory, part.count ? next - whole.first : 0, part.count)) {
        const std::int64_t at = std::exchange(next, next + box.extent.size()), pitch = box.extent[last];
        box.extent[last] = std::min(pitch, piece.extent[last] - box.offset[last]);
        if (box.extent[last] <= 0) continue;  // padding
        for (int axis = 0; axis <= last; ++axis) box.offset[axis] += piece.offset[axis];
        f(piece, HeldBox{box, at, pitch});
      }
    }
  }
}

void require_tensors(const CheckpointReader& reader, const ParameterUnit& unit, const std::string& prefix) {
  for (const auto& parameter : unit.parameters()) {
    for (const ParameterPiece& piece : parameter->pieces) {
      const std::string name = prefix + piece.name;
      const CheckpointReader::Entry* entry = reader.find(name);
      require_input(entry, "{}: no tensor {}: was it written by another model?", reader.directory().string(), name);
      require_input(entry->shape == piece.shape,
                    "{}: {} is {}, this model has {}: use the configuration of the checkpoint",
                    reader.directory().string(), name, entry->shape.text(), piece.shape.text());
    }
  }
}

/// Fills `values`, of f32, with a range of the unit's flat memory, padding aside. `moment`: the prefix of one, or
/// empty.
void read_range(const CheckpointReader& reader, const Stream& stream, const ParameterUnit& unit,
                std::string_view moment, const Range& range, const Tensor& values) {
  const std::string prefix(moment);
  require_tensors(reader, unit, prefix);
  std::vector<float> read, padded;
  for_each_box(unit, range, [&](const ParameterPiece& piece, const HeldBox& held) {
    read.resize(static_cast<std::size_t>(held.box.extent.size()));
    reader.read(prefix + piece.name, held.box, read.data());
    if (!held.contiguous()) {
      padded.assign(static_cast<std::size_t>(held.span()), 0.0f);
      for (std::int64_t row = 0; row < held.rows(); ++row) {
        std::copy_n(read.data() + row * held.columns(), held.columns(), padded.data() + row * held.pitch);
      }
    }
    const std::vector<float>& made = held.contiguous() ? read : padded;
    copy_to_device(stream, values.data<float>() + (held.first - range.first), made.data(), made.size() * sizeof(float));
  });
}

void copy_flat(const Stream& stream, const Tensor& from, const Tensor& to) {
  dispatch_float(from.dtype(), [&]<class From>() {
    dispatch_float(to.dtype(),
                   [&]<class To>() { launch(stream, Cast<From, To>{.x = from.span<From>(), .y = to.span<To>()}); });
  });
}

/// Likewise weights, of any type.
void read_weights(const CheckpointReader& reader, const Stream& stream, const ParameterUnit& unit, const Range& range,
                  const Tensor& values) {
  if (values.dtype() == DType::f32) return read_range(reader, stream, unit, "", range, values);
  const Tensor flat = Tensor::zeros(stream, DType::f32, {range.count}, MemoryKind::buffers);
  read_range(reader, stream, unit, "", range, flat);
  copy_flat(stream, flat, values);
}

/// What a checkpoint gets of flat memory `values`, which begins at element `begin` of the unit's. `moment`: the prefix
/// of one, or empty.
CheckpointPiece piece_of(const Stream& stream, std::string_view moment, const ParameterPiece& piece,
                         const HeldBox& held, const Tensor& values, std::int64_t begin) {
  CheckpointPiece made{.name = std::string(moment) + piece.name, .shape = piece.shape, .box = held.box};
  const std::int64_t first = held.first - begin;
  if (values.dtype() == DType::f32 && held.contiguous()) {
    made.values = values.data<float>() + first;
    made.stream = &stream;
    return made;
  }
  made.make = [&stream, held, own = values.slice(first, held.span())](std::span<float> written) {
    dispatch_float(own.dtype(), [&]<class T>() {
      const std::vector<T> there = values_of<T>(stream, own);
      for (std::int64_t row = 0; row < held.rows(); ++row) {
        std::transform(there.begin() + row * held.pitch, there.begin() + row * held.pitch + held.columns(),
                       written.begin() + row * held.columns(), [](T x) { return static_cast<float>(x); });
      }
    });
  };
  return made;
}

}  // namespace

Optimizer::Optimizer(const OptimConfig& config, Stream stream, std::vector<UnitShare> shares, bool watched)
    : config_(config), stream_(std::move(stream)) {
  for (UnitShare& share : shares) (share.unit->trained() ? shares_ : untrained_).push_back(std::move(share));
  for (const UnitShare& share : shares_) states_.push_back(make_state(share));
  make_tables();
  find_frozen();
  if (!watched) return;
  digests_ = Tensor::zeros(stream_, DType::i32, {blocks_ + 1}, MemoryKind::optimizer);
  renew_digests();
}

Optimizer::State Optimizer::make_state(const UnitShare& share) const {
  const DType type = share.gradients.dtype();
  const auto flat = [&] { return Tensor::zeros(stream_, type, {share.updated.count}, MemoryKind::optimizer); };
  return {.master = share.values.dtype() == type ? share.values : flat(), .exp_avg = flat(), .exp_avg_sq = flat()};
}

void Optimizer::make_tables() {
  if (!shares_.empty()) type_ = shares_.front().values.dtype();
  dispatch_float(type_, [&]<class T>() {
    using A = Accumulator<T>;
    std::vector<AdamWRow<T>> tensors;
    std::vector<DecayRun> runs;
    for (std::size_t s = 0; s < shares_.size(); ++s) {
      const State& state = states_[s];
      const UnitShare& share = shares_[s];
      tensors.push_back({.master = state.master.data<A>(),
                         .exp_avg = state.exp_avg.data<A>(),
                         .exp_avg_sq = state.exp_avg_sq.data<A>(),
                         .gradient = share.gradients.data<A>(),
                         .weight = share.values.data<T>(),
                         .count = share.updated.count,
                         .first_block = blocks_,
                         .first_run = std::ssize(runs)});
      blocks_ += flat_blocks_of(share.updated.count);
      for (const DecayedRun& run : decayed_runs(*share.unit)) {  // some may lie before or behind what is updated
        runs.push_back({.end = run.end - share.updated.first, .weight_decay = run.decays ? config_.weight_decay : 0});
      }
      if (share.unit->size() > 0) runs.back().end = share.size - share.updated.first;  // with the padding
    }
    tensors_ = table_of(stream_, tensors);
    runs_ = table_of(stream_, runs);
  });
}

void Optimizer::find_frozen() {
  for (std::size_t s = 0; s < shares_.size(); ++s) {
    const UnitShare& share = shares_[s];
    for (std::size_t p = 0; p < share.unit->parameters().size(); ++p) {
      for (const Range& still : share.unit->parameters()[p]->frozen) {
        const Range part = common({share.unit->first_of(p) + still.first, still.count}, share.updated);
        if (part.count > 0) frozen_.push_back({s, {part.first - share.updated.first, part.count}});
      }
    }
  }
}

namespace {

void clear(const Stream& stream, const Tensor& values) {
  dispatch_accumulator(values.dtype(), [&]<class A>() { launch(stream, Clear<A>{.y = values.span<A>()}); });
}

}  // namespace

void Optimizer::leave_out_frozen() const {
  for (const auto& [share, part] : frozen_) clear(stream_, shares_[share].gradients.slice(part.first, part.count));
}

void Optimizer::prepare(double lr, std::span<AdamWNumbers> numbers) const {
  const auto n = static_cast<double>(updates_ + 1);
  const AdamWNumbers known{.lr = lr,
                           .rate = lr / (1 - std::pow(config_.beta1, n)),
                           .inverse_bias2 = 1 / (1 - std::pow(config_.beta2, n)),
                           .gradient_scale = 1,
                           .skip = 0};
  copy_to_device(stream_, numbers, std::span(&known, 1));
}

void Optimizer::update(std::span<const AdamWNumbers> numbers, const NormSums& norms, const Tensor& sums) const {
  dispatch_float(type_, [&]<class T>() {
    launch(stream_, AdamWStep<T>{.tensors = rows_of<AdamWRow<T>>(tensors_),
                                 .runs = rows_of<DecayRun>(runs_),
                                 .blocks = blocks_,
                                 .numbers = numbers,
                                 .beta1 = config_.beta1,
                                 .beta2 = config_.beta2,
                                 .eps = config_.eps,
                                 .weight_places = norms.places(0),
                                 .update_places = norms.places(1),
                                 .sums = sums.span<double>(),
                                 .digests = digests()});
  });
}

AdamWDigests Optimizer::digests() const {
  if (!digests_.defined()) return {};
  const std::span all(reinterpret_cast<std::uint32_t*>(digests_.raw()), static_cast<std::size_t>(blocks_ + 1));
  return {.kept = all.first(all.size() - 1), .damaged = all.last(1)};
}

void Optimizer::check_digests(bool renew) const {
  constexpr std::uint32_t none = 0;
  if (!digests_.defined()) return;
  if (renew) copy_to_device(stream_, digests().damaged.data(), &none, sizeof none);
  dispatch_float(type_, [&]<class T>() {
    launch(stream_,
           AdamWCheck<T>{
               .tensors = rows_of<AdamWRow<T>>(tensors_), .blocks = blocks_, .digests = digests(), .renew = renew});
  });
}

void Optimizer::renew_digests() {
  check_digests(true);
  frozen_digests_ = frozen_digests();
}

std::vector<std::uint64_t> Optimizer::frozen_digests() const {
  std::vector<std::uint64_t> digests;
  if (!digests_.defined()) return digests;
  for (const UnitShare& share : untrained_) {
    const bool frozen = share.unit->role() == ParameterUnit::Role::frozen;
    digests.push_back(frozen ? digest_of(stream_, share.values) : 0);
  }
  return digests;
}

std::string Optimizer::look_for_frozen_damage() const {
  const std::vector<std::uint64_t> now = frozen_digests();
  const auto [kept, found] = std::ranges::mismatch(frozen_digests_, now);
  if (kept == frozen_digests_.end()) return {};
  return "parameters of " + untrained_[static_cast<std::size_t>(kept - frozen_digests_.begin())].unit->name() +
         ", which are frozen, changed in memory";
}

std::string Optimizer::look_for_damage() const {
  check_digests(false);
  const std::string trained = damage();
  return trained.empty() ? look_for_frozen_damage() : trained;
}

std::string Optimizer::damage() const {
  if (!digests_.defined()) return {};
  std::array<std::uint32_t, 1> found{};
  copy_to_host(stream_, found.data(), digests().damaged.data(), sizeof found);
  if (found[0] == 0) return {};
  std::int64_t block = blocks_ - static_cast<std::int64_t>(found[0]);
  auto share = shares_.begin();
  for (; block >= flat_blocks_of(share->updated.count); ++share) block -= flat_blocks_of(share->updated.count);
  return "weights or moments changed in memory between two updates: " +
         place_in(*share->unit, common({share->updated.first + block * flat_block, flat_block}, share->updated));
}

std::string Optimizer::nonfinite_gradient() const { return nonfinite(shares_, &UnitShare::gradients); }

std::string Optimizer::nonfinite_weight() const {
  const std::string trained = nonfinite(shares_, &UnitShare::values);
  return trained.empty() ? nonfinite(untrained_, &UnitShare::values) : trained;
}

std::string Optimizer::nonfinite(std::span<const UnitShare> shares, Tensor UnitShare::*flat) const {
  for (auto share = shares.rbegin(); share != shares.rend(); ++share) {
    for (std::size_t p = 0; p < share->unit->parameters().size(); ++p) {
      const Parameter& parameter = *share->unit->parameters()[p];
      const Range part = common({share->unit->first_of(p), parameter.shape.size()}, share->updated);
      if (!all_finite(stream_, (*share).*flat, {part.first - share->updated.first, part.count})) return parameter.name;
    }
  }
  return {};
}

void Optimizer::adopt_weights() {
  for (std::size_t s = 0; s < states_.size(); ++s) {
    if (states_[s].master.dtype() != shares_[s].values.dtype())
      copy_flat(stream_, shares_[s].values, states_[s].master);
  }
  renew_digests();
}

std::vector<CheckpointPiece> Optimizer::pieces() const {
  std::vector<CheckpointPiece> all;
  for (std::size_t s = 0; s < states_.size(); ++s) {
    const State& state = states_[s];
    const UnitShare& share = shares_[s];
    if (share.unit->twin()) continue;
    for_each_box(*share.unit, share.owned, [&](const ParameterPiece& piece, const HeldBox& held) {
      const auto add = [&](std::string_view moment, const Tensor& values) {
        all.push_back(piece_of(stream_, moment, piece, held, values, share.updated.first));
      };
      add("", state.master);
      add(first_moment, state.exp_avg);
      add(second_moment, state.exp_avg_sq);
    });
  }
  for (const UnitShare& share : untrained_) {
    if (share.unit->twin()) continue;
    for_each_box(*share.unit, share.owned, [&](const ParameterPiece& piece, const HeldBox& held) {
      all.push_back(piece_of(stream_, "", piece, held, share.values, share.updated.first));
    });
  }
  return all;
}

void Optimizer::load(const CheckpointReader& reader) {
  const bool moments = reader.has_moments();
  for (std::size_t s = 0; s < states_.size(); ++s) {
    const State& state = states_[s];
    const UnitShare& share = shares_[s];
    read_range(reader, stream_, *share.unit, "", share.updated, state.master);
    if (moments) {
      read_range(reader, stream_, *share.unit, first_moment, share.updated, state.exp_avg);
      read_range(reader, stream_, *share.unit, second_moment, share.updated, state.exp_avg_sq);
    } else {  // of a run that returns to it they would be those of the steps that it forgets
      clear(stream_, state.exp_avg);
      clear(stream_, state.exp_avg_sq);
    }
    if (state.master.dtype() != share.values.dtype()) copy_flat(stream_, state.master, share.values);
  }
  for (const UnitShare& share : untrained_) {
    read_weights(reader, stream_, *share.unit, share.updated, share.values);
  }
  for (const auto& [share, part] : frozen_) {  // a checkpoint that was trained otherwise would continue to move them
    for (const Tensor& moment : {states_[share].exp_avg, states_[share].exp_avg_sq}) {
      clear(stream_, moment.slice(part.first, part.count));
    }
  }
  renew_digests();
}

void load_weights(const CheckpointReader& reader, const Stream& stream, std::span<ParameterUnit* const> units) {
  for (const ParameterUnit* unit : units) read_weights(reader, stream, *unit, {0, unit->size()}, unit->values());
}

}  // namespace lyceum
