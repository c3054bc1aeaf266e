#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "plan/mesh_rank.h"

namespace lyceum {

/// The operations of a process group whose bytes ProcessGroup::Traffic counts and a plan predicts.
enum class Transfer : std::uint8_t { all_reduce, reduce_scatter, all_gather, all_to_all, send };
inline constexpr std::array<std::string_view, 5> transfer_names{"all_reduce", "reduce_scatter", "all_gather",
                                                                "all_to_all", "send"};

/// Bytes and calls of one operation.
struct Volume {
  double bytes = 0;  // passed by this rank, as ProcessGroup::Traffic counts; exact up to 2^53
  double calls = 0;
};

/// The traffic of one rank by group and operation. Groups of one rank have none, as in ProcessGroup.
class Traffic {
 public:
  /// Adds an operation; does nothing for a group of one rank or for 0 bytes.
  void add(const MeshRank& mesh_rank, Axis axis, Transfer transfer, double bytes, double calls = 1);
  Traffic& operator+=(const Traffic& other);
  Traffic operator+(const Traffic& other) const { return Traffic(*this) += other; }
  /// Multiplies the bytes of the operations on one axis by `factor`.
  void scale(Axis axis, double factor);
  /// Returns this traffic multiplied by `count`.
  Traffic times(double count) const;

  const Volume& of(Axis axis, Transfer transfer) const {
    return volumes_[static_cast<std::size_t>(axis)][static_cast<std::size_t>(transfer)];
  }
  /// Returns the sum of Volume::bytes on one axis, or on all axes.
  double bytes(Axis axis) const;
  double bytes() const;

 private:
  std::array<std::array<Volume, transfer_names.size()>, axis_names.size()> volumes_{};
};

/// Traffic of one micro-batch through a part of the model, forward and backward.
struct PassTraffic {
  Traffic forward, backward;
  PassTraffic& operator+=(const PassTraffic& other) {
    forward += other.forward;
    backward += other.backward;
    return *this;
  }
};

}  // namespace lyceum
