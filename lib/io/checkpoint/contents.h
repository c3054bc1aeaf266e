#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "core/tensor.h"
#include "io/files/box.h"
#include "io/run/batch_job.h"

namespace lyceum {

/// The part of one logical tensor that one rank saves: f32 values, row-major within the box.
struct CheckpointPiece {
  std::string name;  // "model/layers/3/mlp/experts/17/gate_proj/weight", "optimizer/exp_avg/model/layers/…"
  Shape shape;       // of the whole logical tensor
  Box box;
  const float* values = nullptr;
  const Stream* stream = nullptr;  // where the values lie; null: on the host
  /// If `values` is null, fills them when they are written, so that only one piece needs memory at a time.
  std::function<void(std::span<float>)> make = {};
};

/// The states of update rules are the logical tensors optimizer/STATE/NAME of a weight NAME.
constexpr std::string_view optimizer_prefix = "optimizer/";
/// True if a logical tensor is the state of an update rule.
inline bool is_optimizer_state(std::string_view name) { return name.starts_with(optimizer_prefix); }

/// The contents of a checkpoint except its tensors.
struct CheckpointHeader {
  std::string run_uuid;
  std::int64_t step = 0;
  std::string mesh;               // text of the mesh that wrote it
  std::string config;             // resolved configuration, INI
  std::string trainer_state;      // JSON, of rank 0: samples seen, skipped steps, last losses …
  std::optional<BatchJob> job{};  // that wrote it
  std::string unsound{};          // why no run should resume from it; empty: it is sound
  bool timed = false;             // saved because of checkpoint.minutes
  std::string tokenizer{};  // bytes of its tokenizer.model, to be written; readers have CheckpointReader::tokenizer
  std::string
      transformers{};  // JSON, to be written: side files of the imported model; see CheckpointReader::transformers
};

constexpr std::string_view tokenizer_name = "tokenizer.model", transformers_name = "transformers.json";

}  // namespace lyceum
