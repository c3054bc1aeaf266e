#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "convert/hugging_face/convert.h"
#include "convert/hugging_face/modules.h"
#include "convert/hugging_face/side_files.h"
#include "convert/hugging_face/stacked_experts.h"
#include "core/error.h"
#include "io/data/tokenizer/tokenizer_files.h"
#include "io/files/atomic_file.h"
#include "io/files/whole_file.h"
#include "io/text/json.h"
#include "io/text/table.h"

namespace lyceum::hugging_face {

namespace fs = std::filesystem;

namespace {

/// A tensor of Lyceum, and its position in a stack of experts if it is in a stack.
struct Part {
  const Recipe* recipe;
  std::optional<StackedPart> stacked = {};
};
/// A tensor of a file and how it is computed.
struct Weights {
  safetensors::Entry entry;
  std::vector<Part> parts;  // one that is not stacked; or all parts of a stack, those of an expert in succession
};
using Shard = std::vector<Weights>;

/// Returns the parts of all stacks, by the name of the stack and in the order of experts.
std::map<std::string, std::vector<Part>> stacks_of(const Hosting& hosting, const std::vector<Recipe>& recipes) {
  std::map<std::string, std::vector<Part>> stacks;
  for (const Recipe& recipe : recipes) {
    auto part = stacked_part(*hosting.architecture, hosting.config.moe.experts, recipe.tensor);
    if (part) stacks[part->name].push_back({&recipe, part});
  }
  for (auto& [name, parts] : stacks) {
    std::ranges::stable_sort(parts, {}, [](const Part& part) { return part.stacked->expert; });
  }
  return stacks;
}

/// Returns all tensors in order, divided into files of at most made.shard_bytes.
std::vector<Shard> shards_of(const Hosting& hosting, const std::vector<Recipe>& recipes, const Export& made) {
  std::vector<Shard> shards(1);
  std::int64_t bytes = 0;
  const auto add = [&](Weights weights) {
    const std::int64_t more = safetensors::bytes_of(weights.entry.type, weights.entry.shape);
    if (!shards.back().empty() && bytes + more > made.shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += more;
    shards.back().push_back(std::move(weights));
  };
  std::map<std::string, std::vector<Part>> stacks = stacks_of(hosting, recipes);
  for (const Recipe& recipe : recipes) {
    const ModelTensor& tensor = recipe.tensor;
    if (const auto part = stacked_part(*hosting.architecture, hosting.config.moe.experts, tensor)) {
      auto stack = stacks.extract(part->name);
      if (stack.empty()) continue;  // added with its first part
      add({{.name = part->name, .type = made.type, .shape = part->stack}, std::move(stack.mapped())});
      continue;
    }
    // A buffer, such as the bias of expert selection, is f32 in transformers too.
    add({{.name = name_in_transformers(*hosting.architecture, hosting.config.model, tensor.name),
          .type = tensor.buffer ? safetensors::Type::f32 : made.type,
          .shape = tensor.shape},
         {{&recipe}}});
  }
  for (const auto& [name, head] : module_copies(hosting.config)) {
    const bool own_head = head && !hosting.config.model.tie_embeddings;
    const Recipe& original =
        *std::ranges::find(recipes, own_head ? "lm_head/weight" : "model/embed_tokens/weight",
                           [](const Recipe& recipe) -> const std::string& { return recipe.tensor.name; });
    add({{.name = name, .type = made.type, .shape = original.tensor.shape}, {{&original}}});
  }
  return shards;
}

std::string file_name(std::size_t shard, std::size_t shards) {
  return shards == 1 ? weights_name : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}

void write_shard(const fs::path& file, const Shard& shard, const CheckpointReader& source) {
  std::vector<safetensors::Entry> entries;
  for (const Weights& weights : shard) entries.push_back(weights.entry);
  safetensors::Writer writer(file, entries);
  const auto write = [&](const safetensors::Entry& entry, std::span<const float> values) {
    require(std::ranges::all_of(values, [](float value) { return std::isfinite(value); }),
            "{}: {} is not finite: the checkpoint is unusable, export an earlier one", source.directory().string(),
            entry.name);
    require(
        entry.type != safetensors::Type::bf16 ||
            std::ranges::all_of(values, [](float value) { return std::isfinite(static_cast<float>(bfloat16(value))); }),
        "{}: {} exceeds the range of BF16: export with --dtype=F32", source.directory().string(), entry.name);
    writer.write(values);
  };
  std::vector<float> values, slab;
  for (const auto& [entry, parts] : shard) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto& [recipe, stacked] = parts[i];
      values.resize(static_cast<std::size_t>(recipe->tensor.shape.size()));
      make_tensor(*recipe, source, 0, values);
      if (!stacked) {
        write(entry, values);
        continue;
      }
      slab.resize(static_cast<std::size_t>(stacked->slab()));
      stacked->put(values, slab);
      const bool complete = i + 1 == parts.size() || parts[i + 1].stacked->expert != stacked->expert;
      if (complete) write(entry, slab);
    }
  }
  writer.finish();
}

std::string index_text(const std::vector<Shard>& shards) {
  std::int64_t bytes = 0;
  nlohmann::json map;  // sorted by key, with fast insertion, unlike ordered_json
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const Weights& weights : shards[i]) {
      bytes += safetensors::bytes_of(weights.entry.type, weights.entry.shape);
      map[weights.entry.name] = file_name(i, shards.size());
    }
  }
  return json_text(nlohmann::json{{"metadata", {{"total_size", bytes}}}, {"weight_map", std::move(map)}}, 2) + '\n';
}

/// Writes all files except the weights. Returns lines for the user.
std::vector<std::string> write_small_files(const fs::path& folder, const Hosting& hosting,
                                           const CheckpointReader& source, const Export& made) {
  const Json imported = side_files_of(source);
  TokenizerFiles files;
  std::optional<Tokenizer> tokenizer;
  if (!source.tokenizer_sha256().empty()) {
    // transformers 5 reads add_bos_token only if there is no tokenizer.json.
    const std::string bos = adds_bos_token(imported) ? bos_token_of(imported).value_or("") : "";
    files = tokenizer_files(source.tokenizer(), bos);
    tokenizer.emplace(source.tokenizer());
  }
  SideFiles side =
      exported_side_files(imported, made.data, tokenizer ? &*tokenizer : nullptr, files.files["tokenizer_config.json"]);
  files.files.erase("tokenizer_config.json");
  side.files.merge(files.files);
  for (const auto& [name, bytes] : side.files) {
    make_directories((folder / name).parent_path());
    write_file(folder / name, bytes);
  }
  Json config = json_of(*hosting.architecture, hosting.config);
  config.update(side.special_tokens);
  config["torch_dtype"] = made.type == safetensors::Type::f32 ? "float32" : "bfloat16";
  write_file(folder / config_name, json_text(config, 2) + '\n');
  if (!tokenizer) return {"tokenizer  none: the checkpoint does not contain one"};
  return files.notes;
}

}  // namespace

std::vector<std::string> export_model(const Hosting& hosting, const std::vector<Recipe>& recipes,
                                      const CheckpointReader& source, const ProcessGroup& world, const Export& made) {
  const fs::path folder = made.folder.has_filename() ? made.folder : made.folder.parent_path();  // "model/" is "model"
  const fs::path partial = folder.string() + ".partial";
  const std::vector<Shard> shards = shards_of(hosting, recipes, made);
  std::vector<std::string> notes;
  try {
    if (world.rank() == 0) {
      fs::remove_all(partial);  // left by a killed process
      make_directories(partial);
    }
    world.barrier();
    for (auto i = static_cast<std::size_t>(world.rank()); i < shards.size();
         i += static_cast<std::size_t>(world.size())) {
      write_shard(partial / file_name(i, shards.size()), shards[i], source);
    }
    if (world.rank() == 0) {
      notes = write_small_files(partial, hosting, source, made);
      if (shards.size() > 1) write_file(partial / index_name, index_text(shards));
      sync_path(partial);
    }
    world.barrier();
    if (world.rank() == 0) rename_path(partial, folder);
  } catch (const Error&) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    throw;
  }
  notes.push_back(fmt::format("files      {}", count_text(std::ssize(shards), "safetensors file")));
  return notes;
}

void require_no_model(const fs::path& folder) {
  const bool is_free = !fs::exists(folder) || (fs::is_directory(folder) && fs::is_empty(folder));
  require_usage(is_free, "{} already exists: name another folder with --out", folder.string());
}

}  // namespace lyceum::hugging_face
