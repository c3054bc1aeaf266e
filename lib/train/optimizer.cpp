#include "train/optimizer.h"

#include <cmath>

#include "kernels/adamw.h"
#include "kernels/elementwise.h"

namespace lyceum {

namespace {

const std::string first_moment = "optimizer/exp_avg/", second_moment = "optimizer/exp_avg_sq/";

void read_tensor(const CheckpointReader& reader, const ParameterUnit& unit, const std::string& prefix,
                 const Tensor& flat) {
  for (std::size_t p = 0; p < unit.parameters().size(); ++p) {
    for (const ParameterPiece& piece : unit.parameters()[p]->pieces) {
      float* values = flat.data<float>() + unit.first_of(p) + piece.first;
      const CheckpointReader::Entry* entry = reader.find(prefix + piece.name);
      require_input(entry, "{}: no tensor {}: was it written by another model?", reader.directory().string(),
                    prefix + piece.name);
      require_input(entry->shape == piece.shape,
                    "{}: {} is {}, this model has {}: set the configuration it was made with",
                    reader.directory().string(), prefix + piece.name, entry->shape.text(), piece.shape.text());
      reader.read(prefix + piece.name, {piece.offset, piece.extent}, values);
    }
  }
}

void copy_flat(const Stream& stream, const Tensor& from, const Tensor& to) {
  dispatch_float(from.dtype(), [&]<class From>() {
    dispatch_float(to.dtype(),
                   [&]<class To>() { launch(stream, Cast<From, To>{.x = from.span<From>(), .y = to.span<To>()}); });
  });
}

}  // namespace

Optimizer::Optimizer(const OptimConfig& config, Stream stream, std::span<const std::unique_ptr<ParameterUnit>> units)
    : config_(config), stream_(std::move(stream)) {
  for (const auto& unit : units) {
    State state{.unit = unit.get(), .master = unit->values(), .exp_avg = {}, .exp_avg_sq = {}, .runs = {}};
    const DType type = unit->gradients().dtype();
    const auto flat = [&] { return Tensor::zeros(stream_, type, {unit->size()}, MemoryKind::optimizer); };
    if (unit->values().dtype() != type) state.master = flat();
    state.exp_avg = flat();
    state.exp_avg_sq = flat();
    const auto& parameters = unit->parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const std::int64_t first = unit->first_of(p);
      const std::int64_t end = p + 1 < parameters.size() ? unit->first_of(p + 1) : unit->size();
      if (!state.runs.empty() && state.runs.back().decay == parameters[p]->decay) {
        state.runs.back().count += end - first;
      } else {
        state.runs.push_back({first, end - first, parameters[p]->decay});
      }
    }
    states_.push_back(std::move(state));
  }
}

double Optimizer::gradient_sum_of_squares(ParameterUnit::Group group) const {
  double total = 0;
  for (const State& state : states_) {
    if (state.unit->group() != group) continue;
    double sum = 0;
    dispatch_accumulator(state.unit->gradients().dtype(), [&]<class A>() {
      launch(stream_, SumOfSquares<A>{.x = state.unit->gradients().span<A>(), .sum = &sum});
    });
    total += sum;
  }
  return total;
}

void Optimizer::step(double lr, double gradient_scale) {
  ++updates_;
  const auto n = static_cast<double>(updates_);
  for (const State& state : states_) {
    dispatch_float(state.unit->values().dtype(), [&]<class T>() {
      using A = Accumulator<T>;
      for (const State::Run& run : state.runs) {
        const auto first = static_cast<std::size_t>(run.first), count = static_cast<std::size_t>(run.count);
        launch(stream_, AdamWStep<T>{.master = state.master.span<A>().subspan(first, count),
                                     .exp_avg = state.exp_avg.span<A>().subspan(first, count),
                                     .exp_avg_sq = state.exp_avg_sq.span<A>().subspan(first, count),
                                     .gradient = state.unit->gradients().span<A>().subspan(first, count),
                                     .weight = state.unit->values().span<T>().subspan(first, count),
                                     .gradient_scale = gradient_scale,
                                     .lr = lr,
                                     .beta1 = config_.beta1,
                                     .beta2 = config_.beta2,
                                     .eps = config_.eps,
                                     .weight_decay = run.decay ? config_.weight_decay : 0.0,
                                     .bias1 = 1 - std::pow(config_.beta1, n),
                                     .bias2 = 1 - std::pow(config_.beta2, n)});
      }
    });
  }
}

void Optimizer::clear_gradients() {
  for (const State& state : states_) {
    const Tensor& gradients = state.unit->gradients();
    dispatch_accumulator(gradients.dtype(), [&]<class A>() { launch(stream_, Clear<A>{.y = gradients.span<A>()}); });
  }
}

std::string Optimizer::nonfinite_gradient() const {
  for (auto state = states_.rbegin(); state != states_.rend(); ++state) {
    for (const auto& parameter : state->unit->parameters()) {
      bool finite = true;
      dispatch_accumulator(parameter->gradient.dtype(), [&]<class A>() {
        for (const A value : parameter->gradient.span<A>()) finite = finite && std::isfinite(value);
      });
      if (!finite) return parameter->name;
    }
  }
  return {};
}

void Optimizer::adopt_weights() {
  for (const State& state : states_) {
    if (state.master.dtype() != state.unit->values().dtype()) copy_flat(stream_, state.unit->values(), state.master);
  }
}

std::vector<CheckpointPiece> Optimizer::pieces(const std::function<bool(const ParameterUnit&)>& owns) const {
  std::vector<CheckpointPiece> all;
  for (const State& state : states_) {
    const ParameterUnit& unit = *state.unit;
    if (!owns(unit)) continue;
    for (std::size_t p = 0; p < unit.parameters().size(); ++p) {
      for (const ParameterPiece& piece : unit.parameters()[p]->pieces) {
        const std::int64_t at = unit.first_of(p) + piece.first;
        const Box box{piece.offset, piece.extent};
        all.push_back({piece.name, piece.shape, box, state.master.data<float>() + at});
        all.push_back({first_moment + piece.name, piece.shape, box, state.exp_avg.data<float>() + at});
        all.push_back({second_moment + piece.name, piece.shape, box, state.exp_avg_sq.data<float>() + at});
      }
    }
  }
  return all;
}

void Optimizer::load(const CheckpointReader& reader) {
  for (const State& state : states_) {
    read_tensor(reader, *state.unit, "", state.master);
    read_tensor(reader, *state.unit, first_moment, state.exp_avg);
    read_tensor(reader, *state.unit, second_moment, state.exp_avg_sq);
    if (state.master.dtype() != state.unit->values().dtype()) copy_flat(stream_, state.master, state.unit->values());
  }
}

void load_weights(const CheckpointReader& reader, const Stream& stream,
                  std::span<const std::unique_ptr<ParameterUnit>> units) {
  for (const auto& unit : units) {
    const bool direct = unit->values().dtype() == DType::f32;
    const Tensor flat =
        direct ? unit->values() : Tensor::zeros(stream, DType::f32, {unit->size()}, MemoryKind::buffers);
    read_tensor(reader, *unit, "", flat);
    if (!direct) copy_flat(stream, flat, unit->values());
  }
}

}  // namespace lyceum
