#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/range.h"
#include "core/tensor.h"
#include "kernels/head_scaling.h"

namespace lyceum {

/// A rectangle of a logical tensor inside a parameter's memory. Logical tensors are the ones that checkpoints name. A
/// parameter that stacks several logical tensors, such as q, k and v, has a slice of each; a sharded parameter has
/// slices of parts of them. Elements in no slice are padding: they are zero, and updates keep them zero since their
/// gradient is zero.
struct ParameterSlice {
  std::string name;        // logical name
  Shape shape;             // of the whole logical tensor
  Shape offset, extent;    // of the slice within the logical tensor
  std::int64_t first;      // element of the parameter at which the slice begins; row-major
  std::int64_t pitch = 0;  // elements from one row (last dimension) to the next in memory; 0: no padding between rows

  /// Returns the extent in memory, including the padding after each row.
  Shape in_memory() const;
};

/// The rule for initial values of a logical tensor:
///   std > 0            normal with this standard deviation and mean 0
///   std = 0            zeros
///   std unset          `constant`, by default ones
///   identity_rows = b  identity matrices [b, b], one after another; `std` must be unset
///   bound > 0          uniform in [−bound, bound); `std` must be unset
struct Initial {
  std::optional<double> std = {};
  std::int64_t identity_rows = 0;
  double bound = 0;
  double constant = 1;

  Initial() = default;
  Initial(double std) : std(std) {}                 // NOLINT: a standard deviation
  Initial(std::optional<double> std) : std(std) {}  // NOLINT: a standard deviation, or unset for ones
  static Initial identity(std::int64_t b) {
    Initial initial;
    initial.identity_rows = b;
    return initial;
  }
  static Initial all(double value) {
    Initial initial;
    initial.constant = value;
    return initial;
  }
  static Initial uniform(double bound) {
    Initial initial;
    initial.bound = bound;
    return initial;
  }
};

class ParameterUnit;
struct Parameter;

/// An adapter of a logical matrix W [m, n] [Hu et al. 2021]: the model uses W + scale · B · A, with A [r, n] and B
/// [m, r], see ParameterUnit::adapter_scale(). It belongs to a slice [m', n'] of W; `a` [r, n'] and `b` [m', r] hold
/// the columns of A and the rows of B for this slice.
struct LowRankAdapter {
  /// A matrix of the adapter, and its first element in the memory of its unit.
  struct Factor {
    Parameter* parameter;
    std::int64_t first;
  };
  std::size_t slice;  // index in Parameter::slices of the adapted parameter
  Factor a, b;
};

/// Elements of a parameter that belong to heads of queries or keys, and the scaling by QK-clip that applies to them.
/// `range` and HeadScaling::begin count from the parameter's first element.
struct HeadElements {
  Range range;
  HeadScaling scaling;
};

/// A weight and its gradient. The value has working precision, or accumulator precision in a buffer
/// (ParameterUnit::Role). The gradient sum has accumulator precision (AccumulatorOf). A parameter of a unit that is not
/// trained has no gradient.
///
/// A gradient is either a sum or *empty*: then its memory has arbitrary contents, perhaps NaN, and the first
/// contribution must replace them. ParameterUnit::begin_gradients() makes gradients empty. Before any other use,
/// contribute() or clear_empty_gradient() must turn an empty gradient into a sum.
struct Parameter {
  std::string name;  // for messages
  Shape shape;
  std::vector<ParameterSlice> slices;
  Initial initial;
  bool decay = false;              // weight decay applies
  std::vector<Range> frozen = {};  // elements that updates leave unchanged: ascending, disjoint

  Tensor value;     // view into the unit's values; undefined while the unit has no memory for them
  Tensor gradient;  // view into the unit's gradients; undefined while there are none; see `gradient_empty`
  ParameterUnit* unit = nullptr;
  std::vector<HeadElements> heads = {};       // ascending, disjoint; used with optim.qk_clip
  std::vector<LowRankAdapter> adapters = {};  // empty unless the unit's role is `adapted`
  bool gradient_empty = false;                // true if `gradient` is empty, see above

  /// Call for each contribution to all elements of the gradient, immediately before it is launched. Returns true if it
  /// must be added, false if it must be written because the gradient was empty. The gradient then counts as a sum.
  bool contribute() { return !std::exchange(gradient_empty, false); }
  /// Clears the gradient if it is empty.
  void clear_empty_gradient(const Stream& stream);
  /// True if the backward pass computes its gradient: its unit is trained or adapted, or it has no unit.
  bool trained() const;
};

/// A manager of the memory of units, which may hold it only while it is needed (ZeRO). A tape notifies it before each
/// use.
class UnitMemory {
 public:
  enum class Pass { forward, backward };
  /// Called before an operation reads the unit's values. When it returns, all values are in memory; they must stay
  /// there until values of another layer are needed. `pass`: the direction of the pass, and so of the next layer; a
  /// recomputation belongs to the backward pass.
  virtual void need_values(ParameterUnit& unit, Pass pass) = 0;
  /// Called before an operation adds to the unit's gradients. When it returns, all gradients are in memory, possibly
  /// empty; they must stay there until all of them are final.
  virtual void need_gradients(ParameterUnit& unit) = 0;

 protected:
  ~UnitMemory() = default;
};

/// Parameters that are used, reduced, updated and sharded together, for example the dense weights of a block or its
/// experts. Their values are one flat tensor, and their gradients another. Each parameter begins at a multiple of 32
/// elements.
class ParameterUnit {
 public:
  /// The ranks that hold copies of a unit and whose gradients must be summed:
  ///   dense       the data-parallel ranks; tensor-parallel ranks hold other parts
  ///   replicated  all ranks of a pipeline stage; each sums gradients over its own tokens
  ///   expert      the ranks that hold the same part of the same experts
  ///   expert_replicated  the ranks that hold any part of the same experts, for factors of adapters that they all have
  enum class Group { dense, replicated, expert, expert_replicated };

  /// The role of a unit in training. Units that are not trained are in checkpoints, but have no gradients and no
  /// moments, and do not count in norms.
  ///   trained  updated by gradients
  ///   frozen   never updated: the parameters that optim.train_only does not name, or that have no adapter
  ///   adapted  as frozen, but values() are the sums of the stored values and of adapters, and gradients() exist until
  ///            the gradients of the adapters are computed from them (Parameter::adapters)
  ///   buffer   not updated by gradients, but possibly by another rule (a router's bias); has accumulator precision;
  ///            every rank that holds a copy holds all of it
  enum class Role { trained, frozen, adapted, buffer };

  /// `layer`: index in the whole model: 0 for the embedding, 1 + b for block b, and one more index for all that follows
  /// the blocks. Units of one layer are used together, and layers in ascending order in the forward pass.
  ParameterUnit(std::string name, Group group, int layer = 0, Role role = Role::trained)
      : name_(std::move(name)), group_(group), layer_(layer), role_(role) {}
  ParameterUnit(const ParameterUnit&) = delete;
  ParameterUnit& operator=(const ParameterUnit&) = delete;

  /// Adds a parameter. Throws an Error if the unit already has memory. The reference stays valid as long as the unit.
  Parameter& add(Parameter parameter);
  /// Moves the parameters for which `moves` is true to another unit. Neither unit may have memory yet. References to
  /// the parameters stay valid.
  void move_to(ParameterUnit& other, const std::function<bool(const Parameter&)>& moves);
  /// Allocates zeroed values in value_type(type) and, if `train` and the unit is trained or adapted, zeroed gradients.
  /// Points every parameter into them.
  void allocate(const Stream& stream, DType type, bool train);
  /// Points every parameter into `values` [size()], or removes the unit's memory if the tensor is undefined.
  void set_values(Tensor values);
  /// Does the same for gradients, which then count as sums.
  void set_gradients(Tensor gradients);
  /// Begins new sums in the memory of the gradients, whatever its contents. The gradients of matrices become empty, so
  /// that their first contribution is written: this saves a pass over the memory to clear it, and another one to read
  /// the zeros. All other elements are cleared. Each range of these takes a launch, so a unit with many of them (as an
  /// expert unit with biases) is cleared as a whole, and no gradient becomes empty.
  void begin_gradients(const Stream& stream);
  /// Writes initial values, which depend only on seed, logical name and global element: every mesh gets the same model.
  /// The unit needs memory for all its values.
  void initialize(const Stream& stream, std::uint64_t seed) { initialize(stream, seed, 0, values_); }
  /// Writes the initial values of the unit's flat elements [first, first + values.size()) to a tensor that the caller
  /// owns. Padding may be left unwritten.
  void initialize(const Stream& stream, std::uint64_t seed, std::int64_t first, const Tensor& values) const;

  /// Sets the manager to notify of every use, or null if the unit always has its memory. The manager must outlive the
  /// unit's uses.
  void set_memory(UnitMemory* memory) { memory_ = memory; }
  UnitMemory* memory() const { return memory_; }

  /// Marks the unit as a duplicate: another pipeline stage has the same tensors and makes the same updates. A twin does
  /// not count in gradient norms and is not in checkpoints.
  void set_twin() { twin_ = true; }
  bool twin() const { return twin_; }
  Role role() const { return role_; }
  bool trained() const { return role_ == Role::trained; }
  bool adapted() const { return role_ == Role::adapted; }
  /// The factor of B · A in adapted parameters.
  double adapter_scale() const { return adapter_scale_; }
  void set_adapter_scale(double scale) { adapter_scale_ = scale; }
  /// Returns the type of the unit's values in a model of type `type`: for a buffer the accumulator type, else `type`.
  DType value_type(DType type) const { return role_ == Role::buffer ? accumulator_of(type) : type; }

  const std::string& name() const { return name_; }
  Group group() const { return group_; }
  int layer() const { return layer_; }
  std::int64_t size() const { return size_; }
  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
  /// Return the flat tensors [size()]; the elements of parameters()[p] begin at first_of(p).
  const Tensor& values() const { return values_; }
  const Tensor& gradients() const { return gradients_; }
  std::int64_t first_of(std::size_t parameter) const { return first_[parameter]; }

 private:
  Parameter& append(std::unique_ptr<Parameter> parameter);

  std::string name_;
  Group group_;
  int layer_;
  Role role_;
  UnitMemory* memory_ = nullptr;
  bool twin_ = false;
  double adapter_scale_ = 1;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::int64_t> first_;
  std::int64_t size_ = 0;
  Tensor values_, gradients_;
};

/// Returns text for messages about a range of a unit's flat memory: "elements 1024 to 2047 of NAME", several such if
/// the range covers several parameters, or "the padding of UNIT".
std::string describe_range(const ParameterUnit& unit, const Range& range);

/// A range of a unit's flat memory in which weight decay applies to all elements or to none. It begins at the end of
/// the previous range (0 for the first).
struct DecayRange {
  std::int64_t end;
  bool decays;
};
/// Returns the ranges of the whole unit in order, alternating between decayed and not decayed. Frozen elements are not
/// decayed.
std::vector<DecayRange> decay_ranges(const ParameterUnit& unit);

/// Writes the initial values of elements [first, first + values.size()) of a logical tensor. `random` must be
/// Philox(seed, name of the logical tensor).
void draw_initial(std::span<float> values, const Initial& initial, const Philox& random, std::int64_t first);

/// Returns a parameter that is one whole logical tensor.
Parameter whole_parameter(std::string name, Shape shape, const Initial& initial, bool decay);

/// Returns a parameter, with weight decay, that is a slice of one logical matrix [shape]: rows (`axis` 0) or columns
/// (`axis` 1) `part`. `room`: columns in memory, at least as many as the slice has, the rest being padding; 0 for no
/// padding.
Parameter sharded_parameter(std::string name, Shape shape, int axis, Range part, double init_std,
                            std::int64_t room = 0);

/// Rows `part` of a logical matrix with `rows` rows, or elements `part` of a logical vector with `rows` elements.
struct RowsOf {
  std::string name;
  std::int64_t rows;
  Range part;
  std::int64_t room = 0;  // rows (elements) in memory, at least part.count; 0: part.count
};
/// Returns a parameter [Σ room, cols] that stacks rows of several logical matrices with `cols` columns. It has weight
/// decay.
Parameter stacked_parameter(std::string name, const std::vector<RowsOf>& matrices, std::int64_t cols, double init_std);
/// Returns a parameter [Σ room] that concatenates elements of several logical vectors. It has no weight decay.
Parameter stacked_vector(std::string name, const std::vector<RowsOf>& vectors, const Initial& initial);

}  // namespace lyceum
