#include "io/routing/layout.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "io/routing/groups.h"

namespace lyceum {
namespace {

void set_origin(hdf5::File& file, const RoutingLog::Origin& origin) {
  file.set("run_uuid", origin.run_uuid);
  file.set("description", origin.description);
}

void set_placement(hdf5::Object object, const RoutingLog::Layer& layer) {
  object.set("expert_sizes", layer.expert_sizes);
  object.set("expert_rank", layer.expert_rank);
}

/// Sets the attributes of the experts on the group and on each of its datasets, so each can be understood when read
/// alone.
void set_placement(hdf5::File& file, const RoutingLog::Layer& layer) {
  const std::string group = group_of(layer.id);
  for (const char* member : {"", "/counts", "/mean_probability"}) set_placement(file.object(group + member), layer);
  if (layer.drops) set_placement(file.object(group + "/dropped"), layer);
  for (const auto& dataset : replica_vectors) {
    if (file.has(group + dataset.name)) set_placement(file.object(group + dataset.name), layer);
  }
  if (layer.always_on > 0) file.object(group).set("always_on", layer.always_on);
}

/// Returns the layout of a dataset whose records have this shape (its axis 0 is ignored). A record of more than
/// 512 bytes has its own compressed chunk, so a new record never rewrites an old one. Smaller ones share uncompressed
/// chunks of up to 1 KiB, which can be rewritten in place.
hdf5::Layout layout_of(Shape shape, DType type) {
  constexpr std::int64_t chunk_bytes = 1024;
  shape[0] = 1;
  const std::int64_t row = shape.size() * static_cast<std::int64_t>(size_of(type));
  shape[0] = std::clamp<std::int64_t>(chunk_bytes / row, 1, chunk_bytes / 4);
  return {.chunk = shape, .growing = true, .compressed = shape[0] == 1};
}

hdf5::Dataset create_growing(hdf5::File& file, const std::string& path, DType type, const Shape& shape) {
  return file.create_dataset(path, type, shape, layout_of(shape, type));
}

/// Creates the dataset with `records` records whose number is unknown (NaN).
void create_number(hdf5::File& file, const hdf5::Dataset& step, const RoutingLog::Layer& layer,
                   const RecordNumber& number, std::int64_t records) {
  hdf5::Dataset dataset = create_growing(file, group_of(layer.id) + number.name, DType::f32, {records});
  dataset.set("units", number.units);
  dataset.attach_scale(0, step);
  dataset.label(0, "step");
  if (records > 0) dataset.write(std::vector(static_cast<std::size_t>(records), std::nanf("")).data());
}

void create_layer(hdf5::File& file, const hdf5::Dataset& step, const RoutingLog::Layer& layer) {
  const std::string group = group_of(layer.id);
  const auto experts = static_cast<std::int64_t>(layer.expert_sizes.size());
  const hdf5::Dataset choice = create_scale(file, group + "/choice", layer.top_k, "choice");
  const hdf5::Dataset expert = create_scale(file, group + "/expert", experts, "expert");
  hdf5::Dataset counts = create_growing(file, group + "/counts", DType::i64, {0, layer.top_k, experts});
  hdf5::Dataset probability = create_growing(file, group + "/mean_probability", DType::f32, {0, experts});
  const auto describe = [](hdf5::Dataset& dataset, const char* units, auto... axes) {
    dataset.set("units", units);
    int axis = 0;
    (..., (dataset.attach_scale(axis, *axes.second), dataset.label(axis++, axes.first)));
  };
  describe(counts, "tokens", std::pair{"step", &step}, std::pair{"choice", &choice}, std::pair{"expert", &expert});
  if (layer.drops) {
    hdf5::Dataset dropped = create_growing(file, group + "/dropped", DType::i64, {0, layer.top_k, experts});
    describe(dropped, "tokens", std::pair{"step", &step}, std::pair{"choice", &choice}, std::pair{"expert", &expert});
  }
  describe(probability, "1", std::pair{"step", &step}, std::pair{"expert", &expert});
  for (const RecordNumber& number : record_numbers) create_number(file, step, layer, number, 0);
  set_placement(file, layer);
}

/// Writes zeros to all records of a dataset, in parts. They are its fill value already, but a file that claims more
/// data than it has written is refused as damaged.
void write_zeros(hdf5::Dataset& dataset) {
  constexpr std::int64_t part_values = 1 << 20;
  const Shape shape = dataset.shape();
  const std::int64_t records = shape[0], most = std::max<std::int64_t>(1, part_values * records / shape.size());
  for (std::int64_t first = 0; first < records; first += most) {
    Box part{.offset = shape, .extent = shape};
    for (int axis = 0; axis < shape.rank(); ++axis) part.offset[axis] = 0;
    part.offset[0] = first;
    part.extent[0] = std::min(most, records - first);
    dataset.write(part, std::vector<std::int64_t>(static_cast<std::size_t>(part.extent.size())).data());
  }
}

/// Creates the datasets of replicas with `records` records without replicas.
void create_replicas(hdf5::File& file, const RoutingLog::Layer& layer, std::int64_t records) {
  const std::string group = group_of(layer.id);
  const hdf5::Dataset step = file.dataset("/step"), expert = file.dataset(group + "/expert");
  const auto create = [&](const auto& description, const Shape& shape) {
    hdf5::Dataset dataset = create_growing(file, group + description.name, DType::i64, shape);
    dataset.set("units", description.units);
    dataset.attach_scale(0, step);
    dataset.label(0, "step");
    if (shape.rank() > 1) {
      dataset.attach_scale(1, expert);
      dataset.label(1, "expert");
    }
    if (records > 0) write_zeros(dataset);
  };
  for (const auto& each : replica_vectors) create(each, {records, std::ssize(layer.expert_sizes)});
  for (const auto& each : replica_numbers) create(each, {records});
  set_placement(file, layer);
}

void resize_records(hdf5::File& file, const std::string& path, std::int64_t records) {
  hdf5::Dataset dataset = file.dataset(path);
  Shape shape = dataset.shape();
  if (shape[0] == records) return;
  shape[0] = records;
  dataset.resize(shape);
}

template <class T>
void append_row(const hdf5::File& file, const std::string& path, const T* values) {
  hdf5::Dataset dataset = file.dataset(path);
  Shape shape = dataset.shape();
  Box row{.offset = shape, .extent = shape};
  for (int axis = 1; axis < shape.rank(); ++axis) row.offset[axis] = 0;
  row.extent[0] = 1;
  ++shape[0];
  dataset.resize(shape);
  dataset.write(row, values);
}

/// Appends a record, the first one behind `before` records, to the datasets of replicas.
void append_replicas(hdf5::File& file, const RoutingLog::Layer& layer, ReplicaCounts counts, std::int64_t before) {
  const std::string group = group_of(layer.id);
  if (!file.has(group + replica_vectors[0].name)) {
    if (counts.empty()) return;
    create_replicas(file, layer, before);
  }
  counts.replicas.resize(layer.expert_sizes.size());  // if there are none
  counts.tokens.resize(layer.expert_sizes.size());
  for (const auto& each : replica_vectors) append_row(file, group + each.name, (counts.*each.member).data());
  for (const auto& each : replica_numbers) append_row(file, group + each.name, &(counts.*each.member));
}

}  // namespace

void create_datasets(hdf5::File& file, const std::vector<RoutingLog::Layer>& layers, const RoutingLog::Origin& origin) {
  file.set("format", routing_format_name);
  file.set("format_version", routing_format_version);
  set_origin(file, origin);
  hdf5::Dataset step = create_growing(file, "/step", DType::i64, {0});
  step.set("units", "steps");
  step.make_scale("step");
  for (const RoutingLog::Layer& layer : layers) create_layer(file, step, layer);
}

void revise_datasets(hdf5::File& file, const std::vector<RoutingLog::Layer>& layers, const RoutingLog::Origin& origin,
                     const LogSize& size) {
  const std::int64_t records = size.records, before = file.dataset("/step").shape()[0];
  resize_records(file, "/step", records);
  if (file.has(moves_name)) resize_records(file, moves_name, size.moves);
  set_origin(file, origin);
  for (const RoutingLog::Layer& layer : layers) {
    const std::string group = group_of(layer.id);
    resize_records(file, group + "/counts", records);
    resize_records(file, group + "/mean_probability", records);
    for (const RecordNumber& number : record_numbers) {  // a file of an older version lacks some of these datasets
      if (file.has(group + number.name)) {
        resize_records(file, group + number.name, records);
      } else {
        create_number(file, file.dataset("/step"), layer, number, records);
      }
    }
    if (layer.drops) resize_records(file, group + "/dropped", records);
    const auto resize_present = [&](const auto& each) {
      if (!file.has(group + each.name)) return;
      hdf5::Dataset dataset = file.dataset(group + each.name);
      const bool known = dataset.shape()[0] == before;  // to the version that wrote the last records
      resize_records(file, group + each.name, records);
      if (!known && records > 0) write_zeros(dataset);
    };
    std::ranges::for_each(replica_vectors, resize_present);
    std::ranges::for_each(replica_numbers, resize_present);
    set_placement(file, layer);
  }
}

void set_placements(hdf5::File& file, const std::vector<RoutingLog::Layer>& layers) {
  for (const RoutingLog::Layer& layer : layers) set_placement(file, layer);
}

void append_moves(hdf5::File& file, std::span<const ExpertMove> moves) {
  if (moves.empty()) return;
  if (!file.has(moves_name)) {
    hdf5::Dataset dataset = create_growing(file, moves_name, DType::i64, {0, move_columns});
    dataset.set("columns", "step, layer, expert, from rank, to rank");
    dataset.set("units", "1");
  }
  std::vector<std::int64_t> values;
  for (const ExpertMove& move : moves) {
    values.insert(values.end(), {move.step, move.layer, move.expert, move.from, move.to});
  }
  hdf5::Dataset dataset = file.dataset(moves_name);
  const std::int64_t before = dataset.shape()[0], count = std::ssize(moves);
  dataset.resize({before + count, move_columns});
  dataset.write(Box{.offset = {before, 0}, .extent = {count, move_columns}}, values.data());
}

void append_record(hdf5::File& file, std::int64_t step, const std::vector<RoutingLog::Layer>& layers,
                   std::span<const LayerRouting> record) {
  const std::int64_t before = file.dataset("/step").shape()[0];
  append_row(file, "/step", &step);
  for (std::size_t l = 0; l < record.size(); ++l) {
    const LayerRouting& layer = record[l];
    const std::string group = group_of(layer.id);
    append_replicas(file, layers[l], layer.replicas, before);
    append_row(file, group + "/counts", layer.counts.data());
    append_row(file, group + "/mean_probability", layer.mean_probability.data());
    for (const RecordNumber& number : record_numbers) {
      const float value = number.of(layer);
      append_row(file, group + number.name, &value);
    }
    if (!layer.dropped.empty()) append_row(file, group + "/dropped", layer.dropped.data());
  }
}

}  // namespace lyceum
