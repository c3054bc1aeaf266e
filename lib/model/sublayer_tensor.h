#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/parameter.h"
#include "config/model.h"
#include "core/range.h"
#include "core/tensor.h"
#include "io/routing/mixture_id.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// The count of BlockCounts to which a tensor belongs.
enum class TensorPart : std::uint8_t { attention, ffn, shared, routed, latent, routers, norms, fusion };

/// The kind of unit that holds a tensor, see ParameterUnit. `untrained` is a replicated unit without gradients.
enum class TensorUnit : std::uint8_t { dense, replicated, experts, untrained };

/// The axis that is divided among ranks: those of `tensor`, or those of `expert_tensor` for a tensor in a unit of
/// experts.
enum class Cut : std::uint8_t { none, rows, columns };

/// A logical tensor that half of a block declares. Parameters, initial values, counts, and the names used by the
/// converter and the Hugging Face tables are derived from it.
struct SublayerTensor {
  std::string name;  // "q_proj/weight"; in a checkpoint it follows half_prefix() and a slash
  Shape shape;       // shape of the whole tensor, on all ranks together
  Initial initial;
  TensorPart part;
  Cut cut = Cut::none;
  /// Adjacent tensors with the same `stack` form one parameter of this name, stacked along rows; empty: not stacked.
  std::string stack = {};
  std::int64_t align = 1;         // the rows or columns of a rank are padded with zeros to a multiple of this
  bool trained = true;            // false: no gradient, updates do not change it
  bool rows_are_choices = false;  // true if it has one row for each choice of the mixture's router
  bool chosen = false;            // true if a token uses only the part that belongs to its choices
  Range choices = {};  // if not empty, one such tensor exists for each of these choices, named experts/N/NAME
  /// True if these choices are divided among the ranks of an expert group; false if every rank has all of them.
  bool placed = false;

  /// Returns the kind of unit that holds it.
  TensorUnit unit() const;
  /// True if weight decay applies, which it does to trained matrices.
  bool decays() const { return trained && shape.rank() > 1; }
  /// Returns the number of elements of this tensor, summed over `choices` if it exists for each of them.
  std::int64_t elements() const { return shape.size() * (choices.count > 0 ? choices.count : 1); }
};

/// Returns the prefix of the tensors of a block of the model, "model/layers/3".
std::string block_prefix(std::int64_t layer);
/// Returns the prefix of the tensors of a block of all_blocks(): as above, or "model/mtp/0" for that of the first
/// module of multi-token prediction, whose other tensors have the same prefix.
std::string block_prefix(const ModelConfig& model, std::int64_t layer);
/// Patterns of the prefixes of all blocks of the model, and of those of all modules.
inline constexpr const char *any_block_prefix = "model/layers/*", *any_module_prefix = "model/mtp/*";
/// Returns the prefix of a half of a block, "model/layers/3/self_attn" or "model/layers/3/mlp". `block`:
/// block_prefix(), or a pattern.
std::string half_prefix(const std::string& block, Site site);
/// Returns "experts/17/NAME" for expert 17. `name` may be a pattern.
std::string expert_tensor_name(std::int64_t expert, const std::string& name);

/// The units to which the parameters of a sub-layer are added. `experts` may be null if no tensor of the sub-layer is
/// placed on expert ranks.
struct SublayerUnits {
  ParameterUnit &dense, &replicated, &untrained;
  ParameterUnit* experts = nullptr;
};

/// Returns the elements of a logical vector that a parameter holds. The parameter must be a slice of one vector.
Range elements_of(const Parameter& slice);

/// This rank's parameters of a sub-layer, by tensor name. The units own the parameters and must outlive this.
class SublayerParameters {
 public:
  /// Creates the parameters and adds them to `units`: first the tensors of the whole half in order, then those of each
  /// choice on this rank. `tensors`: all declared tensors. `prefix`: prefix of their names, without a slash at the end.
  /// `choices`: the choices (experts) on this rank.
  SublayerParameters(const std::vector<SublayerTensor>& tensors, const std::string& prefix, const Mesh& mesh,
                     const SublayerUnits& units, std::span<const std::int32_t> choices = {});

  /// Returns the parameter that holds the tensor, alone or in a stack; null if no such tensor was declared.
  Parameter* find(const std::string& name) const;
  /// Returns the parameter that holds the tensor, alone or in a stack. Throws an Error if no such tensor was declared.
  Parameter& at(const std::string& name) const;
  /// Returns the parameters that hold tensor `name` of each choice on this rank, in the order of the choices. `name`:
  /// the part after "experts/N/". Throws an Error if a choice has no such tensor.
  std::vector<Parameter*> of_choices(const std::string& name) const;

 private:
  std::map<std::string, Parameter*> parameters_;
  std::vector<std::int32_t> choices_;
};

}  // namespace lyceum
