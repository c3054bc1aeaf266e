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

/// The slice of one logical tensor that one rank saves: a box of values, row-major within the box. `values`, `stream`
/// and whatever `make` refers to must stay valid until the slice is written or copied.
struct CheckpointSlice {
  std::string name;  // of the tensor, such as "model/layers/3/mlp/experts/17/gate_proj/weight"
  Shape shape;       // of the whole tensor
  Box box;
  const float* values = nullptr;
  /// The stream whose device holds `values`; null if they are in the host's memory.
  const Stream* stream = nullptr;
  /// If `values` is null, computes them into the given buffer (box.extent.size() elements). It is called only when the
  /// slice is written, so at most one such slice needs memory at a time.
  std::function<void(std::span<float>)> make = {};
  /// The number type in the checkpoint: f32, or bf16, which requires `make`. Values that bf16 cannot represent are
  /// rounded to nearest.
  DType type = DType::f32;
};

/// Prefix of the logical tensors of optimiser state: STATE of weight NAME is "optimizer/STATE/NAME", for example
/// "optimizer/exp_avg/lm_head/weight".
constexpr std::string_view optimizer_prefix = "optimizer/";
/// Prefix of the moving averages of weights (optim.ema), which are stored like optimiser state: "optimizer/ema/NAME".
constexpr std::string_view average_prefix = "optimizer/ema/";
/// True if the logical tensor `name` is optimiser state rather than a weight.
inline bool is_optimizer_state(std::string_view name) { return name.starts_with(optimizer_prefix); }

/// Prefix of the logical tensors of adapters: A [r, n] and B [m, r] of the matrix NAME [m, n] are
/// "adapters/lora_A/NAME" and "adapters/lora_B/NAME".
constexpr std::string_view adapter_prefix = "adapters/", adapter_a_prefix = "adapters/lora_A/",
                           adapter_b_prefix = "adapters/lora_B/";
/// True if the logical tensor `name` belongs to an adapter.
inline bool is_adapter(std::string_view name) { return name.starts_with(adapter_prefix); }

/// The contents of a checkpoint except its tensors.
struct CheckpointHeader {
  std::string run_uuid;
  std::int64_t step = 0;
  std::string mesh;               // of the run that wrote it: "pp1 dp4 tp1 · edp2 ep2 etp1"
  std::string config;             // resolved configuration in INI syntax
  std::string trainer_state;      // JSON, from rank 0: samples seen, skipped steps, last losses …
  std::optional<BatchJob> job{};  // the batch job that wrote it
  std::string unsound{};          // why a run should not resume from it; empty if it is sound
  bool timed = false;             // saved because checkpoint.minutes had passed
  /// Bytes of the tokenizer.model to save, for writers only. Readers use CheckpointReader::tokenizer().
  std::string tokenizer{};
  /// The text of the transformers.json to save, for writers only: JSON with the side files of an imported model.
  /// Readers use CheckpointReader::transformers().
  std::string transformers{};
};

/// Names of these files in a checkpoint.
constexpr std::string_view tokenizer_name = "tokenizer.model", transformers_name = "transformers.json";

}  // namespace lyceum
