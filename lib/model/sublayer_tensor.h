#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/parameter.h"
#include "core/range.h"
#include "core/tensor.h"
#include "io/routing/mixture_id.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// The count of BlockCounts that a tensor adds to.
enum class TensorPart : std::uint8_t { attention, ffn, shared, routed, latent, routers, norms, fusion };

/// The kind of unit that holds a tensor, see ParameterUnit. `untrained` is a replicated unit without gradients.
enum class TensorUnit : std::uint8_t { dense, replicated, experts, untrained };

/// The axis along which ranks share out a tensor: those of `tensor`, or of expert_tensor in a unit of experts.
enum class Cut : std::uint8_t { none, rows, columns };

/// A logical tensor that half of a block declares. Parameters, initial values, counts, and the names that the
/// converter and Hugging Face's tables use follow from it.
struct SublayerTensor {
  std::string name;  // "q_proj/weight": in a checkpoint it follows sublayer_prefix() and a slash
  Shape shape;       // of the whole tensor
  Initial initial;
  TensorPart part;
  Cut cut = Cut::none;
  std::string stack = {};         // neighbours with the same stack are one parameter of this name, one below the other
  std::int64_t align = 1;         // a rank's rows or columns are padded with zeros to a multiple of this
  bool trained = true;            // gradients move it
  bool rows_are_choices = false;  // one row for each choice of the mixture
  bool chosen = false;            // a token uses only the share of it that its mixture chooses
  Range choices = {};             // if not empty: each of these choices has such a tensor, named experts/N/NAME
  bool placed = false;            // the ranks of an expert group share out these choices; else every rank has all

  TensorUnit unit() const;
  /// True if weight decay applies: to matrices that are trained.
  bool decays() const { return trained && shape.rank() > 1; }
  /// Elements of all such tensors of the half.
  std::int64_t elements() const { return shape.size() * (choices.count > 0 ? choices.count : 1); }
};

/// "model/layers/3", and its halves "model/layers/3/self_attn" and "model/layers/3/mlp". `layer` may be a pattern.
std::string block_prefix(const std::string& layer);
std::string sublayer_prefix(const std::string& layer, Site site);
std::string sublayer_prefix(const MixtureId& id);
/// "experts/17/NAME". `name` may be a pattern.
std::string expert_tensor_name(std::int64_t expert, const std::string& name);

/// The units that take the parameters of a sub-layer. `experts` is null unless a tensor of the sub-layer needs it.
struct SublayerUnits {
  ParameterUnit &dense, &replicated, &untrained;
  ParameterUnit* experts = nullptr;
};

/// The parameters that hold this rank's parts of a sub-layer's tensors.
class SublayerParameters {
 public:
  /// Adds them to their units: tensors of the whole half first, in order, then those of each choice that is on this
  /// rank. `prefix`: of the names.
  SublayerParameters(const std::vector<SublayerTensor>& tensors, const std::string& prefix, const Mesh& mesh,
                     const SublayerUnits& units, std::span<const std::int32_t> choices = {});

  /// Returns the parameter that holds the tensor, by itself or stacked; null if none was declared.
  Parameter* find(const std::string& name) const;
  /// Returns the same; throws if none was declared.
  Parameter& at(const std::string& name) const;
  /// Returns the parameters of each choice on this rank that hold its tensor `name`.
  std::vector<Parameter*> of_choices(const std::string& name) const;

 private:
  std::map<std::string, Parameter*> parameters_;
  std::vector<std::int32_t> choices_;
};

}  // namespace lyceum
