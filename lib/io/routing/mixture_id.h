#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace lyceum {

/// The sub-layers of a block, in the order of forward.
enum class Site : std::uint8_t { attention, ffn };

/// Names one mixture of a model: where its router is.
struct MixtureId {
  std::int64_t layer = 0;  // index in the model
  Site site = Site::ffn;
  auto operator<=>(const MixtureId&) const = default;
};

/// What follows the word "layer" in text: "3" of the FFN, "3 attention" of the attention.
inline std::string label_of(const MixtureId& id) {
  return std::to_string(id.layer) + (id.site == Site::attention ? " attention" : "");
}

}  // namespace lyceum
