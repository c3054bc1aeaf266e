#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/random.h"
#include "core/range.h"
#include "core/tensor.h"

namespace lyceum {

/// A rectangle of a logical tensor (named as in a checkpoint) inside a parameter's memory. A parameter that several
/// logical tensors share, such as q, k and v in one matrix, has a piece for each; a sharded one has parts of them.
/// What no piece has is padding: zero, which updates leave as it is, since its gradient is zero.
struct ParameterPiece {
  std::string name;        // logical name
  Shape shape;             // of the whole logical tensor
  Shape offset, extent;    // this piece within it
  std::int64_t first;      // element of the parameter where the piece begins; row-major
  std::int64_t pitch = 0;  // elements from one row of the last dimension to the next; 0: as many as a row has

  /// The piece with the padding behind its rows.
  Shape in_memory() const;
};

/// Initial values: normal with a deviation, zeros where that is 0; ones without one; or identity matrices [b, b], one
/// behind the other.
struct Initial {
  std::optional<double> std = {};
  std::int64_t identity_rows = 0;

  Initial() = default;
  Initial(double std) : std(std) {}                 // NOLINT: a deviation
  Initial(std::optional<double> std) : std(std) {}  // NOLINT: likewise
  static Initial identity(std::int64_t b) {
    Initial initial;
    initial.identity_rows = b;
    return initial;
  }
};

class ParameterUnit;

/// What training changes: a value in working precision and the sum of its gradients in accumulator precision. One of a
/// unit that is not trained has a value alone.
struct Parameter {
  std::string name;  // for messages
  Shape shape;
  std::vector<ParameterPiece> pieces;
  Initial initial;
  bool decay = false;              // weight decay applies
  std::vector<Range> frozen = {};  // elements of a trained one that updates leave as they are: ascending, apart

  Tensor value;     // memory of a ParameterUnit; undefined while the unit has none
  Tensor gradient;  // likewise; undefined where nothing trains
  ParameterUnit* unit = nullptr;

  /// Whether gradients move it.
  bool trained() const;
};

/// Whoever keeps the memory of units elsewhere while nothing uses it. A tape notifies it of what it is about to use.
class UnitMemory {
 public:
  enum class Pass { forward, backward };
  /// Values of the unit will be read, until values of a unit of another layer are needed.
  virtual void need_values(ParameterUnit& unit, Pass pass) = 0;
  /// Gradients of the unit will be added to, until all are final.
  virtual void need_gradients(ParameterUnit& unit) = 0;

 protected:
  ~UnitMemory() = default;
};

/// Parameters that are used, reduced and updated together, one after another in flat memory: a block's dense weights,
/// or its experts.
class ParameterUnit {
 public:
  /// Which ranks hold copies, whose gradients are to be summed. dense: the data-parallel ranks; tensor-parallel ones
  /// hold other parts. replicated: all ranks of a stage; each sums gradients over its own tokens. expert: the ranks
  /// that hold the same part of the same experts.
  enum class Group { dense, replicated, expert };

  /// What becomes of it in training. Those that are not trained are in a checkpoint, and have no gradients, no moments
  /// and no part in norms.
  ///   trained  gradients move it
  ///   frozen   nothing does: parameters that optim.train_only does not name
  ///   buffer   no gradient does, but a rule of its own may: values in accumulator precision, which every rank that
  ///            holds copies holds whole
  enum class Role { trained, frozen, buffer };

  /// `layer`: its place in the whole model; units of one layer are used together. 0 the input, then the blocks.
  ParameterUnit(std::string name, Group group, int layer = 0, Role role = Role::trained)
      : name_(std::move(name)), group_(group), layer_(layer), role_(role) {}
  ParameterUnit(const ParameterUnit&) = delete;
  ParameterUnit& operator=(const ParameterUnit&) = delete;

  /// Before the unit has memory. The reference stays valid as long as the unit.
  Parameter& add(Parameter parameter);
  /// Hands the parameters that `moves` chooses over to another unit, before either has memory. References to them stay
  /// valid.
  void move_to(ParameterUnit& other, const std::function<bool(const Parameter&)>& moves);
  /// Takes flat memory for values in `type` (of a buffer, in its accumulator type) and, when `train` and it is trained,
  /// zeroed gradients, and points every parameter into it.
  void allocate(const Stream& stream, DType type, bool train);
  /// Points every parameter into flat memory [size], or takes the memory away where the tensor is undefined.
  void set_values(Tensor values);
  void set_gradients(Tensor gradients);
  /// Initial values from (seed, logical name, global element): the same on every mesh.
  void initialize(const Stream& stream, std::uint64_t seed) { initialize(stream, seed, 0, values_); }
  /// Those of the flat elements [first, first + values.size()), padding aside, in memory of somebody else.
  void initialize(const Stream& stream, std::uint64_t seed, std::int64_t first, const Tensor& values) const;

  /// Notified of every use from now on; null: the unit has its memory at all times.
  void set_memory(UnitMemory* memory) { memory_ = memory; }
  UnitMemory* memory() const { return memory_; }

  /// Another pipeline stage has the same tensors and keeps them equal: these count neither in a gradient norm nor in a
  /// checkpoint.
  void set_twin() { twin_ = true; }
  bool twin() const { return twin_; }
  Role role() const { return role_; }
  bool trained() const { return role_ == Role::trained; }
  /// Type of the values where the model's is `type`.
  DType value_type(DType type) const { return role_ == Role::buffer ? accumulator_of(type) : type; }

  const std::string& name() const { return name_; }
  Group group() const { return group_; }
  int layer() const { return layer_; }
  std::int64_t size() const { return size_; }
  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
  /// Flat [size]; parameter p's elements begin where first_of(p) says.
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
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::int64_t> first_;
  std::int64_t size_ = 0;
  Tensor values_, gradients_;
};

/// For messages: "elements 1024 to 2047 of NAME", or several such, of a unit's flat memory.
std::string place_in(const ParameterUnit& unit, const Range& range);

/// Neighbours in the flat memory of a unit that weight decay treats alike: it moves what decays and is not frozen.
struct DecayedRun {
  std::int64_t end;
  bool decays;
};
std::vector<DecayedRun> decayed_runs(const ParameterUnit& unit);

/// Initial values of neighbouring elements of a logical tensor, the first of which is element `first` of all. `random`:
/// of the seed and the tensor's name.
void draw_initial(std::span<float> values, const Initial& initial, const Philox& random, std::int64_t first);

/// A parameter that is one whole logical tensor.
Parameter whole_parameter(std::string name, Shape shape, const Initial& initial, bool decay);

/// Rows or columns (`axis` 0 or 1) `part` of one logical matrix. `room`: columns in memory, at least as many; 0: as
/// many.
Parameter sharded_parameter(std::string name, Shape shape, int axis, Range part, double init_std,
                            std::int64_t room = 0);

/// Rows `part` of a logical matrix of `rows` rows, or elements of a vector of as many.
struct RowsOf {
  std::string name;
  std::int64_t rows;
  Range part;
  std::int64_t room = 0;  // of a matrix: rows in memory, at least part.count; 0: as many
};
/// A matrix [Σ room, cols] of rows of several logical matrices, one below the other.
Parameter stacked_parameter(std::string name, const std::vector<RowsOf>& matrices, std::int64_t cols, double init_std);
/// A vector [Σ part.count] of elements of several logical vectors, one behind the other, which are not decayed.
Parameter stacked_vector(std::string name, const std::vector<RowsOf>& vectors, const Initial& initial);

}  // namespace lyceum
