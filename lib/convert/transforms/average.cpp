#include "convert/transforms/average.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "config/continuation.h"
#include "core/error.h"
#include "io/files/whole_file.h"

namespace lyceum {

namespace {

constexpr std::int64_t elements_at_a_time = 1 << 20;

/// Writes the weighted mean of one tensor to `values`.
void average(std::span<const CheckpointReader> sources, const std::vector<double>& weights, const std::string& name,
             const Shape& shape, std::span<float> values) {
  double total = 0;
  for (const double weight : weights) total += weight;
  const std::int64_t row = shape.size() / shape[0], rows = std::max<std::int64_t>(1, elements_at_a_time / row);
  std::vector<float> read;
  std::vector<double> sums;
  for (std::int64_t first = 0; first < shape[0]; first += rows) {
    Box box = Box::whole(shape);
    box.offset[0] = first;
    box.extent[0] = std::min(rows, shape[0] - first);
    const auto count = static_cast<std::size_t>(box.extent.size());
    read.resize(count);
    sums.assign(count, 0);
    for (std::size_t s = 0; s < sources.size(); ++s) {
      sources[s].read(name, box, read.data());
      for (std::size_t i = 0; i < count; ++i) sums[i] += weights[s] * static_cast<double>(read[i]);
    }
    std::ranges::transform(sums, values.begin() + first * row,
                           [&](double sum) { return static_cast<float>(sum / total); });
  }
}

/// Returns the names and shapes of the checkpoint's weights.
std::vector<CheckpointReader::Entry> weights_of(const CheckpointReader& source) {
  std::vector<CheckpointReader::Entry> weights;
  std::ranges::copy_if(source.tensors(), std::back_inserter(weights),
                       [](const CheckpointReader::Entry& entry) { return !is_optimizer_state(entry.name); });
  return weights;
}

}  // namespace

void require_same_model(std::span<const CheckpointReader> sources, std::span<const Config> configs) {
  const std::string first = sources[0].directory().string();
  const std::vector<CheckpointReader::Entry> expected = weights_of(sources[0]);
  for (std::size_t s = 1; s < sources.size(); ++s) {
    const std::string other = sources[s].directory().string();
    for (const Change& change : changes(configs[0], configs[s])) {
      require_usage(change.role != KeyRole::identity || !describes_model(change.key),
                    "{} and {} have different models: {} = {} and {}", first, other, change.key, change.before,
                    change.after);
    }
    const std::vector<CheckpointReader::Entry> tensors = weights_of(sources[s]);
    const auto [mine, theirs] = std::ranges::mismatch(
        expected, tensors, [](const auto& a, const auto& b) { return a.name == b.name && a.shape == b.shape; });
    const auto text = [](const auto& at, const auto& all) {
      return at == all.end() ? std::string("no further tensor") : at->name + " " + at->shape.text();
    };
    require_usage(mine == expected.end() && theirs == tensors.end(), "{} and {} have different models: {} and {}",
                  first, other, text(mine, expected), text(theirs, tensors));
    require_usage(sources[0].tokenizer_sha256() == sources[s].tokenizer_sha256(), "{} and {} have different tokenizers",
                  first, other);
  }
}

NewRun averaged_run(const Conversion& conversion, std::span<const CheckpointReader> sources,
                    const std::vector<double>& weights) {
  NewRun run{.config = conversion.config, .resolved = conversion.resolved, .tensors = {}};
  if (!sources[0].tokenizer_sha256().empty()) run.tokenizer = read_whole_file(sources[0].tokenizer());
  run.transformers = sources[0].transformers();
  for (const Recipe& recipe : conversion.recipes) {
    const std::string& name = recipe.tensor.name;
    run.tensors.push_back({name, recipe.tensor.shape, [=, shape = recipe.tensor.shape](std::span<float> values) {
                             average(sources, weights, name, shape, values);
                           }});
  }
  return run;
}

}  // namespace lyceum
