#include "io/routing/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <string>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "io/files/atomic_file.h"
#include "io/files/hdf5.h"
#include "io/files/open_regular.h"
#include "io/files/system_reason.h"
#include "io/files/uninterrupted.h"
#include "io/routing/groups.h"
#include "io/routing/history.h"

// How a record is written so that a kill at any time leaves a readable file.
//
// HDF5 cannot append to a file in such a way that it is readable at every moment, and copying the file for each of S
// records would copy S²/2 records. So there are two files that alternate: the published one, which is never open for
// writing, and its twin, which lacks some records (normally one). To append a record:
// 1. Write it into the twin, after all records that the twin lacks; close and sync the twin.
// 2. link(routing.h5, spare): the published file gets a second name.
// 3. rename(next, routing.h5): atomic. Before it, readers find the old records; after it, the new one too.
// 4. rename(spare, next): the file that was published becomes the twin.
//
// `routing.h5` is the name of a closed, complete file at every moment. The files with the other two names are not
// needed after a kill: a new log removes both and copies the published file before its first record. The directory is
// synced before the old file is written again, so the order also holds if the machine loses power.

namespace lyceum {
namespace {

constexpr const char* format_name = "lyceum.routing";

/// Returns the path .NAME.SUFFIX next to a file NAME.
std::filesystem::path hidden_neighbour(const std::filesystem::path& file, const char* suffix) {
  return file.parent_path() / fmt::format(".{}{}", file.filename().string(), suffix);
}

/// Throws a failed Error if a call of the file system failed.
void require_success(const std::error_code& error, const std::filesystem::path& path, const char* what) {
  require(!error, "{}: cannot be {}: {}", path.string(), what, system_reason(error));
}

/// Copies a file, and replaces `to`.
void copy_fresh(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  do {
    std::filesystem::remove(to, error);
    require_success(error, to, "removed");
    std::filesystem::copy_file(from, to, error);  // fails if another file or link has been created under this name
  } while (error == std::errc::interrupted);
  require_success(error, to, "written");
}

void rename_over(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  std::filesystem::rename(from, to, error);
  require_success(error, to, "replaced");
}

/// True if a reader that opened the file while it was published still holds HDF5's lock on it.
bool has_readers(const std::filesystem::path& path) {
  const int descriptor = open_regular(path, O_RDONLY, Links::refused);
  const bool locked = descriptor >= 0 && ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (descriptor >= 0) ::close(descriptor);
  return locked;
}

void set_origin(hdf5::File& file, const RoutingLog::Origin& origin) {
  file.set("run_uuid", origin.run_uuid);
  file.set("description", origin.description);
}

/// True if the file has the attributes of Origin; false for a file of an older version.
bool has_origin(const std::filesystem::path& path) {
  const hdf5::File file = hdf5::File::open(path);
  return file.has_attribute("run_uuid") && file.has_attribute("description");
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
  if (layer.always_on > 0) file.object(group).set("always_on", layer.always_on);
}

/// A dataset with one f32 number per record, in the group of a router.
struct RecordNumber {
  const char* name;
  const char* units;
  float (*of)(const LayerRouting&);
};
constexpr std::array record_numbers{
    RecordNumber{"/mean_entropy", "nat", [](const LayerRouting& r) { return r.mean_entropy; }},
    RecordNumber{"/step_max_vio_mean", "1", [](const LayerRouting& r) { return r.steps.max_vio_mean; }},
    RecordNumber{"/step_max_vio_max", "1", [](const LayerRouting& r) { return r.steps.max_vio_max; }},
    RecordNumber{"/step_idle_mean", "experts", [](const LayerRouting& r) { return r.steps.idle_mean; }},
    RecordNumber{"/step_idle_max", "experts", [](const LayerRouting& r) { return r.steps.idle_max; }}};

/// Creates the dataset with `records` records whose number is unknown (NaN).
void create_number(hdf5::File& file, const hdf5::Dataset& step, const RoutingLog::Layer& layer,
                   const RecordNumber& number, std::int64_t records) {
  hdf5::Dataset dataset =
      file.create_dataset(group_of(layer.id) + number.name, DType::f32, {records}, {.growing = true});
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
  hdf5::Dataset counts =
      file.create_dataset(group + "/counts", DType::i64, {0, layer.top_k, experts}, {.growing = true});
  hdf5::Dataset probability =
      file.create_dataset(group + "/mean_probability", DType::f32, {0, experts}, {.growing = true});
  const auto describe = [](hdf5::Dataset& dataset, const char* units, auto... axes) {
    dataset.set("units", units);
    int axis = 0;
    (..., (dataset.attach_scale(axis, *axes.second), dataset.label(axis++, axes.first)));
  };
  describe(counts, "tokens", std::pair{"step", &step}, std::pair{"choice", &choice}, std::pair{"expert", &expert});
  if (layer.drops) {
    hdf5::Dataset dropped =
        file.create_dataset(group + "/dropped", DType::i64, {0, layer.top_k, experts}, {.growing = true});
    describe(dropped, "tokens", std::pair{"step", &step}, std::pair{"choice", &choice}, std::pair{"expert", &expert});
  }
  describe(probability, "1", std::pair{"step", &step}, std::pair{"expert", &expert});
  for (const RecordNumber& number : record_numbers) create_number(file, step, layer, number, 0);
  set_placement(file, layer);
}

void resize_records(hdf5::File& file, const std::string& path, std::int64_t records) {
  hdf5::Dataset dataset = file.dataset(path);
  Shape shape = dataset.shape();
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

/// Throws unless the sizes of a record are those of the log's layer.
void require_record(const RoutingLog::Layer& expected, const LayerRouting& layer) {
  const auto experts = static_cast<std::int64_t>(expected.expert_sizes.size());
  require(layer.id == expected.id && layer.top_k == expected.top_k && layer.experts == experts,
          "routing of layer {} (top {} of {} experts) was given for layer {} (top {} of {})", label_of(layer.id),
          layer.top_k, layer.experts, label_of(expected.id), expected.top_k, experts);
  require(static_cast<std::int64_t>(layer.counts.size()) == layer.top_k * experts &&
              static_cast<std::int64_t>(layer.mean_probability.size()) == experts,
          "routing of layer {}: {} counts and {} probabilities do not match top {} of {} experts", label_of(layer.id),
          layer.counts.size(), layer.mean_probability.size(), layer.top_k, experts);
  require(layer.dropped.size() == (expected.drops ? layer.counts.size() : 0),
          "routing of layer {}: there are {} counts of dropped choices for {} counts", label_of(layer.id),
          layer.dropped.size(), layer.counts.size());
}

}  // namespace

RoutingLog::RoutingLog(std::filesystem::path file, std::vector<Layer> layers, std::int64_t resume_step, Origin origin)
    : file_(std::move(file)),
      next_(hidden_neighbour(file_, ".next")),
      spare_(hidden_neighbour(file_, ".spare")),
      layers_(std::move(layers)),
      origin_(std::move(origin)) {
  require(!layers_.empty(), "{}: a model without experts has no routing to log", file_.string());
  for (const Layer& layer : layers_) {
    require(layer.top_k > 0 && !layer.expert_sizes.empty() && layer.expert_rank.size() == layer.expert_sizes.size(),
            "routing log: layer {} cannot have top {} of {} experts with {} ranks of experts", label_of(layer.id),
            layer.top_k, layer.expert_sizes.size(), layer.expert_rank.size());
  }
  std::error_code ignored;  // if a file cannot be removed, writing it fails and reports the error
  std::filesystem::remove(spare_, ignored);
  std::filesystem::remove(next_, ignored);
  if (resume_step >= 0 && std::filesystem::exists(file_)) {
    resume(resume_step);
  } else {
    create();
  }
}

RoutingLog::~RoutingLog() {
  std::error_code ignored;
  std::filesystem::remove(next_, ignored);
}

void RoutingLog::create() {
  {
    hdf5::File file = hdf5::File::create(next_);
    file.set("format", format_name);
    file.set("format_version", routing_format_version);
    set_origin(file, origin_);
    {
      hdf5::Dataset step = file.create_dataset("/step", DType::i64, {0}, {.growing = true});
      step.set("units", "steps");
      step.make_scale("step");
      for (const Layer& layer : layers_) create_layer(file, step, layer);
    }
    file.close();
  }
  publish();
  next_usable_ = false;  // it would be the file of the replaced run
}

void RoutingLog::resume(std::int64_t resume_step) {
  const RoutingHistory history = read_routing(file_);
  const auto end = std::upper_bound(history.steps.begin(), history.steps.end(), resume_step);
  records_ = published_ = end - history.steps.begin();
  if (published_ == 0) return create();
  last_step_ = *(end - 1);
  bool same_placement = true, complete = has_origin(file_), same_layers = history.layers.size() == layers_.size();
  for (std::size_t i = 0; same_layers && i < layers_.size(); ++i) {
    const RoutingHistory::Layer& old = history.layers[i];
    same_layers = old.id == layers_[i].id && old.top_k == layers_[i].top_k &&
                  old.expert_sizes == layers_[i].expert_sizes && old.drops == layers_[i].drops &&
                  old.always_on == layers_[i].always_on;
    same_placement = same_placement && old.expert_rank == layers_[i].expert_rank;
    complete = complete && !old.mean_entropy.empty() && !old.steps.empty();
  }
  require_input(same_layers,
                "{}: contains the routing of a model with different layers or experts, or of a run that differs in "
                "whether moe.capacity_factor is set; set another run.dir or move the file away",
                file_.string());
  if (same_placement && complete && end == history.steps.end()) return;
  copy_fresh(file_, next_);
  {
    hdf5::File file = hdf5::File::edit(next_);
    resize_records(file, "/step", published_);
    set_origin(file, origin_);
    for (const Layer& layer : layers_) {
      resize_records(file, group_of(layer.id) + "/counts", published_);
      resize_records(file, group_of(layer.id) + "/mean_probability", published_);
      for (const RecordNumber& number : record_numbers) {  // a file of an older version lacks some of these datasets
        if (file.has(group_of(layer.id) + number.name)) {
          resize_records(file, group_of(layer.id) + number.name, published_);
        } else {
          create_number(file, file.dataset("/step"), layer, number, published_);
        }
      }
      if (layer.drops) resize_records(file, group_of(layer.id) + "/dropped", published_);
      set_placement(file, layer);
    }
    file.close();
  }
  publish();
  next_usable_ = false;  // it has the records that were removed
}

void RoutingLog::append(std::int64_t step, std::span<const LayerRouting> layers) {
  require(step > last_step_, "routing log: step {} cannot follow step {}", step, last_step_);
  require(layers.size() == layers_.size(), "routing log: {} layers were given instead of {}", layers.size(),
          layers_.size());
  for (std::size_t i = 0; i < layers.size(); ++i) require_record(layers_[i], layers[i]);
  recent_.push_back({step, {layers.begin(), layers.end()}});
  const std::int64_t before = std::exchange(last_step_, step);
  ++records_;
  const std::int64_t twin_records = published_;
  try {
    write_recent();
    publish();
  } catch (...) {
    if (published_ < records_) {
      recent_.pop_back();
      --records_;
      last_step_ = before;
    }
    throw;
  }
  while (records_ - static_cast<std::int64_t>(recent_.size()) < twin_records) recent_.pop_front();
}

/// Writes the missing records to the twin and closes it. If this fails, the twin is not used again before it is copied
/// anew.
void RoutingLog::write_recent() {
  if (!std::exchange(next_usable_, false) || has_readers(next_)) {
    copy_fresh(file_, next_);
  }
  hdf5::File file = hdf5::File::edit(next_);
  const std::int64_t held = file.dataset("/step").shape()[0];
  const std::int64_t first_recent = records_ - static_cast<std::int64_t>(recent_.size());
  for (std::int64_t r = held; r < records_; ++r) {
    const RoutingRecord& record = recent_[static_cast<std::size_t>(r - first_recent)];
    append_row(file, "/step", &record.step);
    for (const LayerRouting& layer : record.layers) {
      append_row(file, group_of(layer.id) + "/counts", layer.counts.data());
      append_row(file, group_of(layer.id) + "/mean_probability", layer.mean_probability.data());
      for (const RecordNumber& number : record_numbers) {
        const float value = number.of(layer);
        append_row(file, group_of(layer.id) + number.name, &value);
      }
      if (!layer.dropped.empty()) append_row(file, group_of(layer.id) + "/dropped", layer.dropped.data());
    }
  }
  file.close();
}

/// Gives the twin the file's name; the published file becomes the twin.
void RoutingLog::publish() {
  sync_path(next_);
  // `no_link` is set for the first file, or if the file system has no hard links; then each record copies the file.
  std::error_code absent, no_link;
  std::filesystem::remove(spare_, absent);
  std::filesystem::create_hard_link(file_, spare_, no_link);
  rename_over(next_, file_);
  published_ = records_;
  sync_path(std::filesystem::absolute(file_).parent_path());
  if (no_link) return;
  rename_over(spare_, next_);
  next_usable_ = true;
}

}  // namespace lyceum
