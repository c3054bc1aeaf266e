#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace lyceum {

/// The sub-layers (halves) of a block, in forward order.
enum class Site : std::uint8_t { attention, ffn };

/// Identifies one mixture of a model by the location of its router.
struct MixtureId {
  std::int64_t layer = 0;  // index in the model
  Site site = Site::ffn;
  auto operator<=>(const MixtureId&) const = default;
};

/// Returns the text after the word "layer" in messages and tables: "3" for the FFN of layer 3, "3 attention" for its
/// attention.
inline std::string label_of(const MixtureId& id) {
  return std::to_string(id.layer) + (id.site == Site::attention ? " attention" : "");
}

}  // namespace lyceum
