#include "io/routing/history.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "core/error.h"
#include "io/files/hdf5.h"
#include "io/routing/groups.h"

namespace lyceum {
namespace {

/// Reads a dataset with one number per record.
std::vector<float> read_numbers(const hdf5::File& file, const std::string& path, std::int64_t records) {
  const hdf5::Dataset dataset = file.dataset(path);
  require_input(dataset.shape() == Shape({records}) && dataset.dtype() == DType::f32,
                "{}: {} is {}, expected float32 [{}]", file.path().string(), path, dataset.shape().text(), records);
  return dataset.read<float>();
}

/// Reads the balance of single steps; empty for a file of an older version.
std::vector<StepBalance> read_steps(const hdf5::File& file, const std::string& group, std::int64_t records) {
  if (!file.has(group + "/step_max_vio_mean")) return {};
  std::vector<StepBalance> steps(static_cast<std::size_t>(records));
  for (const auto& [name, member] :
       {std::pair{"/step_max_vio_mean", &StepBalance::max_vio_mean},
        std::pair{"/step_max_vio_max", &StepBalance::max_vio_max},
        std::pair{"/step_idle_mean", &StepBalance::idle_mean}, std::pair{"/step_idle_max", &StepBalance::idle_max}}) {
    require_input(file.has(group + name), "{}: {} lacks {}", file.path().string(), group, name + 1);
    const std::vector<float> numbers = read_numbers(file, group + name, records);
    for (std::size_t r = 0; r < steps.size(); ++r) steps[r].*member = numbers[r];
  }
  return steps;
}

RoutingHistory::Layer read_router(const hdf5::File& file, const MixtureId& id, std::int64_t records) {
  const std::string path = group_of(id), where = file.path().string() + ": " + path;
  RoutingHistory::Layer layer{};
  layer.id = id;
  for (const char* dataset : {"/counts", "/mean_probability"}) {
    require_input(file.has(path + dataset), "{} lacks {}", where, dataset + 1);
  }
  const hdf5::Dataset counts = file.dataset(path + "/counts");
  const hdf5::Dataset probability = file.dataset(path + "/mean_probability");
  const Shape shape = counts.shape();
  require_input(
      shape.rank() == 3 && shape[0] == records && shape[1] > 0 && shape[2] > 0 && counts.dtype() == DType::i64,
      "{}/counts is {}, expected int64 [{}, top_k, experts]", where, shape.text(), records);
  layer.top_k = shape[1];
  layer.experts = shape[2];
  require_input(probability.shape() == Shape({records, layer.experts}) && probability.dtype() == DType::f32,
                "{}/mean_probability is {}, expected float32 [{}, {}]", where, probability.shape().text(), records,
                layer.experts);
  layer.counts = counts.read<std::int64_t>();
  layer.mean_probability = probability.read<float>();
  require_input(std::all_of(layer.counts.begin(), layer.counts.end(), [](std::int64_t n) { return n >= 0; }),
                "{}/counts contains a negative number of tokens", where);
  if (file.has(path + "/mean_entropy")) layer.mean_entropy = read_numbers(file, path + "/mean_entropy", records);
  layer.steps = read_steps(file, path, records);
  layer.drops = file.has(path + "/dropped");
  if (layer.drops) {
    const hdf5::Dataset dropped = file.dataset(path + "/dropped");
    require_input(dropped.shape() == shape && dropped.dtype() == DType::i64, "{}/dropped is {}, expected int64 {}",
                  where, dropped.shape().text(), shape.text());
    layer.dropped = dropped.read<std::int64_t>();
    for (std::size_t i = 0; i < layer.dropped.size(); ++i) {
      require_input(layer.dropped[i] >= 0 && layer.dropped[i] <= layer.counts[i],
                    "{}/dropped contains {} dropped choices of {}", where, layer.dropped[i], layer.counts[i]);
    }
  }
  const hdf5::Object group = file.object(path);
  for (const auto& [attribute, values] :
       {std::pair{"expert_sizes", &layer.expert_sizes}, std::pair{"expert_rank", &layer.expert_rank}}) {
    require_input(group.has_attribute(attribute), "{} lacks the attribute {}", where, attribute);
    *values = group.integers(attribute);
    require_input(static_cast<std::int64_t>(values->size()) == layer.experts, "{}: {} has {} values for {} experts",
                  where, attribute, values->size(), layer.experts);
  }
  if (group.has_attribute("always_on")) layer.always_on = group.integer("always_on");
  require_input(layer.always_on >= 0 && layer.always_on < layer.experts, "{}: {} of {} experts cannot be always active",
                where, layer.always_on, layer.experts);
  return layer;
}

}  // namespace

RoutingHistory read_routing(const std::filesystem::path& file) {
  require_input(std::filesystem::exists(file), "{}: no such file; a run writes it if routing.every is above 0",
                file.string());
  const hdf5::File in = hdf5::File::open(file);
  // The text of `format` is not read: HDF5 stores strings without checksums, and a damaged one can make it hang.
  require_input(
      in.has_attribute("format") && in.has_attribute("format_version") && in.has("/step") && in.has("/layers"),
      "{}: is not a routing log", file.string());
  require_input(in.integer("format_version") == routing_format_version,
                "{}: has format version {}, this program reads {}", file.string(), in.integer("format_version"),
                routing_format_version);
  RoutingHistory history;
  const hdf5::Dataset step = in.dataset("/step");
  require_input(step.shape().rank() == 1 && step.dtype() == DType::i64, "{}: /step is {}, expected int64 [records]",
                file.string(), step.shape().text());
  history.steps = step.read<std::int64_t>();
  require_input(std::is_sorted(history.steps.begin(), history.steps.end(), std::less_equal<>()),
                "{}: /step does not increase from record to record", file.string());
  for (const MixtureId& id : routers_in(in)) history.layers.push_back(read_router(in, id, std::ssize(history.steps)));
  return history;
}

}  // namespace lyceum
