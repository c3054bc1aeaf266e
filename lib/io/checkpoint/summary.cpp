#include "io/checkpoint/summary.h"

#include <optional>
#include <utility>

#include "io/checkpoint/manifest.h"

namespace lyceum {

CheckpointSummary summarize_checkpoint(const std::filesystem::path& directory) {
  CheckpointSummary summary;
  std::optional<StoredTensor> bad;  // the first tensor whose boxes do not cover it
  const auto owner = [](std::size_t) { return std::string(); };
  std::vector<Box> boxes;
  Manifest manifest = scan_manifest(directory, [&](StoredTensor&& tensor) {
    ++summary.tensors;
    if (!is_optimizer_state(tensor.name)) summary.parameters += tensor.shape.size();
    boxes.clear();
    for (const StoredSlice& stored : tensor.boxes) boxes.push_back(stored.box);
    if (!bad && !coverage_problem(tensor.name, tensor.shape, boxes, owner).empty()) bad = std::move(tensor);
  });
  if (bad) {
    summary.problem = (directory / manifest_name).string() + ": " +
                      coverage_problem(bad->name, bad->shape, bad->boxes, manifest.files);
  }
  for (const StoredFile& file : manifest.files) {
    summary.bytes += file.digest.bytes;
    if (summary.problem.empty()) summary.problem = file_problem(directory, file, /*sizes_only=*/true);
  }
  summary.header = std::move(manifest.header);
  return summary;
}

}  // namespace lyceum
