#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convert/hugging_face/model_folder.h"
#include "model/model_tensors.h"

// Model classes whose files have one tensor for all experts of a layer (Architecture::stacked_experts), as gpt_oss has:
//
//   gate_up_proj       [experts, hidden, 2 · width]  gates and ups in alternating columns
//   gate_up_proj_bias  [experts, 2 · width]
//   down_proj          [experts, width, hidden]
//   down_proj_bias     [experts, hidden]
//
// Matrices may be stored in MXFP4 instead [OCP Microscaling Formats 1.0]. Then gate_up_proj_blocks [experts, 2 · width,
// hidden / 32, 16] and gate_up_proj_scales [experts, 2 · width, hidden / 32] replace gate_up_proj, and correspondingly
// for down_proj. Both are bytes. A block has 32 numbers of 4 bits (E2M1), in each byte the lower four bits first, and
// is multiplied by 2^(scale − 127).

namespace lyceum::hugging_face {

/// The position of one of Lyceum's tensors of an expert, [rows, cols], or [rows] with cols = 1, in a stacked tensor:
/// element (r, c) is element (c, first + step · r) of the expert's part of the stack.
struct StackedPart {
  std::string name;  // of the stacked tensor
  Shape stack;       // its shape
  std::int64_t expert, experts;
  std::int64_t rows, cols;
  std::int64_t first, step;

  /// Returns the number of elements of one expert's part of the stack.
  std::int64_t slab() const { return cols * step * rows; }
  /// Copies the values of Lyceum's tensor to an expert's part of the stack. Other elements remain unchanged.
  void put(std::span<const float> values, std::span<float> slab) const;
  /// Copies the values of Lyceum's tensor from an expert's part of the stack.
  void take(std::span<const float> slab, std::span<float> values) const;
};

/// Returns the position of a tensor of a model with `experts` experts in every layer; nothing if the architecture does
/// not stack it.
std::optional<StackedPart> stacked_part(const Architecture& architecture, std::int64_t experts,
                                        const ModelTensor& tensor);

/// How to read one of Lyceum's tensors.
struct StackedSource {
  std::vector<std::string> names;  // of the tensors in the files
  std::function<void(std::span<float>)> make;
};
/// Returns how to read a tensor from the files, in MXFP4 or not. Throws a bad_input Error if they do not have it, or
/// have it in another shape or type; `make` throws one for values that are not finite. `model` must outlive the result.
StackedSource stacked_source(const ModelFolder& model, const StackedPart& part);

/// Throws a bad_input Error unless every layer of the files has as many experts as `config`, and biases of its hidden
/// width: so the tensors of all experts may be listed, since the files have values for each.
void require_stacked_experts(const ModelFolder& model, const Config& config);

}  // namespace lyceum::hugging_face
