#include "io/routing/history.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "core/error.h"
#include "io/files/hdf5.h"
#include "io/files/journaled_hdf5.h"
#include "io/routing/groups.h"
#include "io/routing/layout.h"
#include "io/routing/moves.h"

namespace lyceum {

/// The storage of the records of a RoutingReader.
struct RoutingReader::Source {
  std::vector<std::int64_t> steps;
  std::vector<RoutingHistory::Layer> routers;           // without records
  std::map<std::int64_t, std::size_t> router_of_layer;  // those of FFNs
  std::string name = "routing log";
  std::size_t moves = 0;
  bool complete = true;

  Source() = default;
  virtual ~Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  /// Adds these records of a router to `layer`, which has none.
  virtual void read(std::size_t router, RecordRange records, RoutingHistory::Layer& layer) const = 0;
  /// Returns these moves without checks.
  virtual std::vector<ExpertMove> read_moves(RecordRange moves) const = 0;

 protected:
  /// Adds a router without records.
  void add_router(RoutingHistory::Layer router) {
    if (router.id.site == Site::ffn) router_of_layer[router.id.layer] = routers.size();
    routers.push_back(std::move(router));
  }
};

namespace {

using RouterRecords = RoutingHistory::Layer;

RouterRecords without_records(const RouterRecords& layer) {
  return {.id = layer.id,
          .top_k = layer.top_k,
          .experts = layer.experts,
          .expert_sizes = layer.expert_sizes,
          .expert_rank = layer.expert_rank,
          .counts = {},
          .mean_probability = {},
          .drops = layer.drops,
          .always_on = layer.always_on};
}

/// Returns the values of some records. `all` has `width` values for each record, or is empty.
template <class T>
std::vector<T> rows_of(const std::vector<T>& all, RecordRange records, std::int64_t width) {
  if (all.empty()) return {};
  return {all.begin() + static_cast<std::int64_t>(records.begin) * width,
          all.begin() + static_cast<std::int64_t>(records.end) * width};
}

struct StepFigure {
  const char* name;
  float StepBalance::*member;
};
constexpr StepFigure step_figures[] = {{"/step_max_vio_mean", &StepBalance::max_vio_mean},
                                       {"/step_max_vio_max", &StepBalance::max_vio_max},
                                       {"/step_idle_mean", &StepBalance::idle_mean},
                                       {"/step_idle_max", &StepBalance::idle_max}};

void require_shape(const hdf5::File& file, const std::string& path, const Shape& shape, DType type, const char* name) {
  const hdf5::Dataset dataset = file.dataset(path);
  require_input(dataset.shape() == shape && dataset.dtype() == type, "{}: {} is {}, expected {} {}",
                file.path().string(), path, dataset.shape().text(), name, shape.text());
}

/// True if the router has replicas in each of these records. A version that does not know the datasets of replicas does
/// not change their length when it continues a log, so their rows no longer belong to its records.
bool has_replicas(const hdf5::File& file, const std::string& path, std::int64_t records) {
  const std::string replicas = path + replica_vectors[0].name;
  return file.has(replicas) && file.dataset(replicas).shape()[0] == records;
}

/// Reads the properties of a router and checks the shapes of its datasets.
RouterRecords read_router(const hdf5::File& file, const MixtureId& id, std::int64_t records) {
  const std::string path = group_of(id), where = file.path().string() + ": " + path;
  RouterRecords layer{};
  layer.id = id;
  for (const char* dataset : {"/counts", "/mean_probability"}) {
    require_input(file.has(path + dataset), "{} lacks {}", where, dataset + 1);
  }
  const hdf5::Dataset counts = file.dataset(path + "/counts");
  const Shape shape = counts.shape();
  require_input(
      shape.rank() == 3 && shape[0] == records && shape[1] > 0 && shape[2] > 0 && counts.dtype() == DType::i64,
      "{}/counts is {}, expected int64 [{}, top_k, experts]", where, shape.text(), records);
  layer.top_k = shape[1];
  layer.experts = shape[2];
  require_shape(file, path + "/mean_probability", {records, layer.experts}, DType::f32, "float32");
  layer.drops = file.has(path + "/dropped");
  if (layer.drops) require_shape(file, path + "/dropped", shape, DType::i64, "int64");
  for (const RecordNumber& number : record_numbers) {
    if (file.has(path + number.name)) require_shape(file, path + number.name, {records}, DType::f32, "float32");
  }
  for (const StepFigure& number : step_figures) {
    require_input(file.has(path + number.name) == file.has(path + step_figures[0].name), "{} lacks {}", where,
                  number.name + 1);
  }
  if (has_replicas(file, path, records)) {
    const auto require_replicas = [&](const auto& each, const Shape& shape_of_all) {
      require_input(file.has(path + each.name), "{} lacks {}", where, each.name + 1);
      require_shape(file, path + each.name, shape_of_all, DType::i64, "int64");
    };
    for (const auto& each : replica_vectors) require_replicas(each, {records, layer.experts});
    for (const auto& each : replica_numbers) require_replicas(each, {records});
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

/// Reads rows of a dataset whose records have this shape (its axis 0 is replaced).
template <class T>
std::vector<T> read_rows(const hdf5::File& file, const std::string& path, RecordRange records, Shape shape) {
  Box box{.offset = shape, .extent = shape};
  for (int axis = 0; axis < shape.rank(); ++axis) box.offset[axis] = 0;
  box.offset[0] = static_cast<std::int64_t>(records.begin);
  box.extent[0] = static_cast<std::int64_t>(records.size());
  std::vector<T> values(static_cast<std::size_t>(box.extent.size()));
  file.dataset(path).read(box, values.data());
  return values;
}

/// Reads the replicas of some of the `all` records of a router; empty if the log has none.
std::vector<ReplicaCounts> read_replicas(const hdf5::File& file, const std::string& path, std::int64_t all,
                                         RecordRange records, std::int64_t experts) {
  if (!has_replicas(file, path, all)) return {};
  std::vector<ReplicaCounts> replicas(records.size());
  const auto require_counts = [&](const std::vector<std::int64_t>& values, const char* name) {
    require_input(std::ranges::all_of(values, [](std::int64_t n) { return n >= 0; }),
                  "{}: {}{} contains a negative number", file.path().string(), path, name);
  };
  for (const auto& each : replica_vectors) {
    const std::vector<std::int64_t> values = read_rows<std::int64_t>(file, path + each.name, records, {1, experts});
    require_counts(values, each.name);
    for (std::size_t r = 0; r < records.size(); ++r) {
      replicas[r].*each.member = rows_of(values, {r, r + 1}, experts);
    }
  }
  for (const auto& each : replica_numbers) {
    const std::vector<std::int64_t> values = read_rows<std::int64_t>(file, path + each.name, records, {1});
    require_counts(values, each.name);
    for (std::size_t r = 0; r < records.size(); ++r) replicas[r].*each.member = values[r];
  }
  return replicas;
}

/// Returns the number of moves in a log, and checks the shape of their dataset.
std::size_t count_moves(const hdf5::File& file) {
  if (!file.has(moves_name)) return 0;
  const hdf5::Dataset dataset = file.dataset(moves_name);
  const Shape shape = dataset.shape();
  require_input(shape.rank() == 2 && shape[1] == move_columns && dataset.dtype() == DType::i64,
                "{}: {} is {}, expected int64 [moves, {}]", file.path().string(), moves_name, shape.text(),
                move_columns);
  return static_cast<std::size_t>(shape[0]);
}

std::int64_t bytes_of_record(const RouterRecords& layer) {
  return layer.experts * (layer.top_k * (layer.drops ? 16 : 8) + 4 + 16);  // with replicas
}

}  // namespace

struct RoutingReader::MemorySource : Source {
  explicit MemorySource(RoutingHistory history) : all(std::move(history)) {
    steps = all.steps;
    moves = all.moves.size();
    for (const RouterRecords& layer : all.layers) add_router(without_records(layer));
  }
  void read(std::size_t router, RecordRange records, RouterRecords& layer) const override {
    const RouterRecords& from = all.layers[router];
    layer.counts = rows_of(from.counts, records, from.top_k * from.experts);
    layer.dropped = rows_of(from.dropped, records, from.top_k * from.experts);
    layer.mean_probability = rows_of(from.mean_probability, records, from.experts);
    layer.mean_entropy = rows_of(from.mean_entropy, records, 1);
    layer.steps = rows_of(from.steps, records, 1);
    layer.replicas = rows_of(from.replicas, records, 1);
  }
  std::vector<ExpertMove> read_moves(RecordRange range) const override {
    const auto begin = all.moves.begin();
    return {begin + static_cast<std::ptrdiff_t>(range.begin), begin + static_cast<std::ptrdiff_t>(range.end)};
  }
  RoutingHistory all;
};

struct RoutingReader::FileSource : Source {
  explicit FileSource(const std::filesystem::path& path) : opened(open_journaled(path)) {
    const hdf5::File& file = opened->file();
    name = path.string();
    // The text of `format` is not read: HDF5 stores strings without checksums, and a damaged one can make it hang.
    require_input(file.has_attribute("format") && file.has_attribute("format_version") && file.has("/step") &&
                      file.has("/layers"),
                  "{}: is not a routing log", name);
    require_input(file.integer("format_version") == routing_format_version,
                  "{}: has format version {}, this program reads {}", name, file.integer("format_version"),
                  routing_format_version);
    const hdf5::Dataset step = file.dataset("/step");
    require_input(step.shape().rank() == 1 && step.dtype() == DType::i64, "{}: /step is {}, expected int64 [records]",
                  name, step.shape().text());
    steps = step.read<std::int64_t>();
    require_input(std::is_sorted(steps.begin(), steps.end(), std::less_equal<>()),
                  "{}: /step does not increase from record to record", name);
    complete = file.has_attribute("run_uuid") && file.has_attribute("description");
    for (const MixtureId& id : routers_in(file)) {
      add_router(read_router(file, id, std::ssize(steps)));
      for (const RecordNumber& number : record_numbers) complete = complete && file.has(group_of(id) + number.name);
      complete = complete && file.has(group_of(id) + replica_vectors[0].name) ==
                                 has_replicas(file, group_of(id), std::ssize(steps));
    }
    moves = count_moves(file);
  }
  void read(std::size_t, RecordRange records, RouterRecords& layer) const override {
    const hdf5::File& file = opened->file();
    const std::string path = group_of(layer.id), where = file.path().string() + ": " + path;
    const Shape counts{1, layer.top_k, layer.experts};
    layer.counts = read_rows<std::int64_t>(file, path + "/counts", records, counts);
    layer.mean_probability = read_rows<float>(file, path + "/mean_probability", records, {1, layer.experts});
    require_input(std::ranges::all_of(layer.counts, [](std::int64_t n) { return n >= 0; }),
                  "{}/counts contains a negative number of tokens", where);
    if (file.has(path + "/mean_entropy")) {
      layer.mean_entropy = read_rows<float>(file, path + "/mean_entropy", records, {1});
    }
    if (file.has(path + step_figures[0].name)) {
      layer.steps.resize(records.size());
      for (const StepFigure& number : step_figures) {
        const std::vector<float> values = read_rows<float>(file, path + number.name, records, {1});
        for (std::size_t r = 0; r < values.size(); ++r) layer.steps[r].*number.member = values[r];
      }
    }
    layer.replicas = read_replicas(file, path, std::ssize(steps), records, layer.experts);
    if (!layer.drops) return;
    layer.dropped = read_rows<std::int64_t>(file, path + "/dropped", records, counts);
    for (std::size_t i = 0; i < layer.dropped.size(); ++i) {
      require_input(layer.dropped[i] >= 0 && layer.dropped[i] <= layer.counts[i],
                    "{}/dropped contains {} dropped choices of {}", where, layer.dropped[i], layer.counts[i]);
    }
  }
  std::vector<ExpertMove> read_moves(RecordRange range) const override {
    std::vector<ExpertMove> result;
    if (range.size() == 0) return result;
    const std::vector<std::int64_t> values =
        read_rows<std::int64_t>(opened->file(), moves_name, range, {1, move_columns});
    for (auto v = values.begin(); v != values.end(); v += move_columns)
      result.push_back({v[0], v[1], v[2], v[3], v[4]});
    return result;
  }
  std::unique_ptr<SharedHdf5> opened;
};

RoutingReader::RoutingReader(RoutingHistory history)
    : source_(std::make_shared<const MemorySource>(std::move(history))) {}

RoutingReader::RoutingReader(const std::filesystem::path& file) {
  require_input(std::filesystem::exists(file), "{}: no such file; a run writes it if routing.every is above 0",
                file.string());
  source_ = std::make_shared<const FileSource>(file);
}

const std::vector<std::int64_t>& RoutingReader::steps() const { return source_->steps; }
const std::vector<RoutingHistory::Layer>& RoutingReader::routers() const { return source_->routers; }
std::size_t RoutingReader::move_count() const { return source_->moves; }
const std::string& RoutingReader::name() const { return source_->name; }
bool RoutingReader::complete() const { return source_->complete; }

RoutingHistory::Layer RoutingReader::read(std::size_t router, RecordRange records) const {
  RoutingHistory::Layer layer = source_->routers[router];
  source_->read(router, records, layer);
  return layer;
}

void RoutingReader::for_each_part(std::size_t router, RecordRange records,
                                  const std::function<void(const RoutingHistory::Layer&, std::size_t)>& use) const {
  constexpr std::int64_t part_bytes = 16 << 20;
  const auto most =
      static_cast<std::size_t>(std::max<std::int64_t>(1, part_bytes / bytes_of_record(routers()[router])));
  for (std::size_t r = records.begin; r < records.end; r += most) {
    use(read(router, {r, std::min(r + most, records.end)}), r);
  }
}

std::size_t RoutingReader::ffn_router(std::int64_t layer) const {
  const auto router = source_->router_of_layer.find(layer);
  require_input(router != source_->router_of_layer.end(), "{}: has no experts in layer {}", name(), layer);
  return router->second;
}

std::vector<ExpertMove> RoutingReader::read_moves(RecordRange moves) const {
  std::vector<ExpertMove> result = source_->read_moves(moves);
  for (const ExpertMove& move : result) {
    const auto router = source_->router_of_layer.find(move.layer);
    require_input(
        router != source_->router_of_layer.end() && move.expert >= 0 && move.expert < routers()[router->second].experts,
        "{}: {} moves expert {} of layer {}, which is not in the log", name(), moves_name, move.expert, move.layer);
    require_input(move.from >= 0 && move.to >= 0, "{}: {} moves expert {} of layer {} from rank {} to rank {}", name(),
                  moves_name, move.expert, move.layer, move.from, move.to);
  }
  return result;
}

RoutingHistory read_routing(const std::filesystem::path& file) {
  const RoutingReader reader(file);
  RoutingHistory history{.steps = reader.steps(), .layers = {}, .moves = read_known_moves(reader)};
  for (std::size_t i = 0; i < reader.routers().size(); ++i) {
    history.layers.push_back(reader.read(i, {0, reader.steps().size()}));
  }
  return history;
}

}  // namespace lyceum
