#include "io/checkpoint/shard.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "core/copy.h"
#include "core/error.h"
#include "io/checkpoint/save_plan.h"
#include "io/files/atomic_file.h"
#include "io/files/hdf5.h"
#include "io/files/virtual_hdf5.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;

/// True if the values are in the host's memory and can be written without a copy.
bool on_host(const CheckpointSlice& slice) { return slice.values && !(slice.stream && asynchronous(*slice.stream)); }

void copy_values(const CheckpointSlice& slice, std::span<float> copy) {
  if (copy.empty()) return;
  if (!slice.values) {
    slice.make(copy);
  } else if (on_host(slice)) {
    std::memcpy(copy.data(), slice.values, copy.size_bytes());
  } else {
    copy_to_host(*slice.stream, copy.data(), slice.values, copy.size_bytes());
  }
}

/// Rounds to nearest.
void narrow(std::span<const float> from, std::span<bfloat16> to) {
  std::ranges::transform(from, to.begin(), [](float x) { return bfloat16(x); });
}

std::size_t values_in(const CheckpointSlice& slice) { return static_cast<std::size_t>(slice.box.extent.size()); }

}  // namespace

HostCopy::HostCopy(std::span<const CheckpointSlice> from) {
  std::size_t count = 0, half_count = 0, largest = 0;
  for (const CheckpointSlice& slice : from) {
    (slice.type == DType::bf16 ? half_count : count) += values_in(slice);
    if (slice.type == DType::bf16) largest = std::max(largest, values_in(slice));
  }
  std::vector<float> wide;
  try {
    values = std::make_unique_for_overwrite<float[]>(count);
    halves = std::make_unique_for_overwrite<bfloat16[]>(half_count);
    wide.resize(largest);
  } catch (const std::bad_alloc&) {
    fail(ExitCode::failed, "not enough memory for a copy of {} bytes: set checkpoint.background = false",
         (count + largest) * sizeof(float) + half_count * sizeof(bfloat16));
  }
  std::span<float> rest(values.get(), count);
  std::span<bfloat16> rest_of_halves(halves.get(), half_count);
  for (const CheckpointSlice& slice : from) {
    CheckpointSlice copied{.name = slice.name, .shape = slice.shape, .box = slice.box, .type = slice.type};
    if (slice.type == DType::bf16) {
      const std::span<bfloat16> copy = rest_of_halves.first(values_in(slice));
      const std::span<float> made = std::span(wide).first(copy.size());
      copy_values(slice, made);
      narrow(made, copy);
      copied.make = [copy](std::span<float> written) {
        std::ranges::transform(copy, written.begin(), [](bfloat16 x) { return static_cast<float>(x); });
      };
      rest_of_halves = rest_of_halves.subspan(copy.size());
    } else {
      const std::span<float> copy = rest.first(values_in(slice));
      copy_values(slice, copy);
      copied.values = copy.data();
      rest = rest.subspan(copy.size());
    }
    slices.push_back(std::move(copied));
  }
}

namespace {

/// Returns the number of packed elements of a type in a shard with these slices.
std::int64_t packed_elements(std::span<const CheckpointSlice> slices, DType type) {
  PackedRanges packed;
  for (const CheckpointSlice& slice : slices) {
    if (values_in(slice) > 0) packed.add(slice.type, slice.box.extent.size());
  }
  return packed.elements(type);
}

/// The flat dataset of the packed boxes of one type, which is written in large parts.
class PackedDataset {
 public:
  /// `elements`: of the whole dataset, which is created with the first part.
  PackedDataset(DType type, std::int64_t elements) : type_(type), elements_(elements) {}

  /// Appends values, which flush() writes. Returns true if there are enough for a part.
  bool append(std::span<const float> values) {
    if (type_ == DType::bf16) {
      const std::size_t before = halves_.size();
      halves_.resize(before + values.size());
      narrow(values, std::span(halves_).subspan(before));
    } else {
      floats_.insert(floats_.end(), values.begin(), values.end());
    }
    ++boxes_;
    return std::max(halves_.size(), floats_.size()) >= part_elements;
  }
  /// Writes the appended values to the file. Calls `before_each` once per box.
  void flush(hdf5::File& file, const std::function<void()>& before_each) {
    for (; boxes_ > 0; --boxes_) before_each();
    const auto count = static_cast<std::int64_t>(std::max(halves_.size(), floats_.size()));
    if (count == 0) return;
    if (!dataset_) {
      // Small chunks, since a reader on another mesh reads boxes in another order.
      const std::int64_t chunk = chunk_bytes / static_cast<std::int64_t>(size_of(type_));
      dataset_ = file.create_dataset(PackedRanges::dataset(type_), type_, {elements_},
                                     {.chunk = {std::min(chunk, elements_)}});
    }
    const void* values = type_ == DType::bf16 ? static_cast<const void*>(halves_.data()) : floats_.data();
    dataset_->write({.offset = {written_}, .extent = {count}}, type_, values);
    written_ += count;
    halves_.clear();
    floats_.clear();
  }
  /// Writes the appended values and closes the dataset. To be called before the file is closed.
  void finish(hdf5::File& file, const std::function<void()>& before_each) {
    flush(file, before_each);
    dataset_.reset();
  }

 private:
  static constexpr std::size_t part_elements = 1 << 18;
  static constexpr std::int64_t chunk_bytes = 1 << 16;

  DType type_;
  std::int64_t elements_, written_ = 0;
  std::int64_t boxes_ = 0;  // number of boxes that are not written yet
  std::vector<float> floats_;
  std::vector<bfloat16> halves_;
  std::optional<hdf5::Dataset> dataset_;
};

/// Returns the values of a slice, in its own memory or in `copy`.
std::span<const float> values_of(const CheckpointSlice& slice, std::vector<float>& copy) {
  if (on_host(slice)) return {slice.values, values_in(slice)};
  copy.resize(values_in(slice));
  copy_values(slice, copy);
  return copy;
}

}  // namespace

void write_shard(const fs::path& path, std::span<const CheckpointSlice> slices, const std::stop_token& stop,
                 const RunOnFiles& run, const std::function<void()>& before_each) {
  std::optional<hdf5::File> file;
  run([&] { file.emplace(hdf5::File::create(path)); });
  PackedRanges ranges;
  PackedDataset floats(DType::f32, packed_elements(slices, DType::f32)),
      halves(DType::bf16, packed_elements(slices, DType::bf16));
  std::vector<float> copy;
  std::vector<bfloat16> narrowed;
  for (const CheckpointSlice& slice : slices) {
    if (values_in(slice) == 0) continue;
    require(!stop.stop_requested(), "{}: stopped on request", path.string());
    const std::span<const float> values = values_of(slice, copy);
    if (ranges.add(slice.type, slice.box.extent.size())) {
      PackedDataset& packed = slice.type == DType::bf16 ? halves : floats;
      if (packed.append(values)) run([&] { packed.flush(*file, before_each); });
      continue;
    }
    const void* written = values.data();
    if (slice.type == DType::bf16) {
      narrowed.resize(values.size());
      narrow(values, narrowed);
      written = narrowed.data();
    }
    const std::string name = dataset_name(slice.name, slice.shape, slice.box);
    run([&] {
      before_each();
      file->create_dataset(name, slice.type, slice.box.extent).write(Box::whole(slice.box.extent), slice.type, written);
    });
  }
  run([&] {
    floats.finish(*file, before_each);
    halves.finish(*file, before_each);
    file->close();
  });
}

void write_index(const fs::path& path, const Manifest& manifest, const std::function<void()>& each) {
  hdf5::VirtualFile views(path);
  std::vector<hdf5::VirtualSource> sources;
  for (const StoredTensor& tensor : manifest.tensors) {
    sources.clear();
    for (const StoredSlice& stored : tensor.boxes) {
      sources.push_back({shard_name(static_cast<int>(stored.file)), stored.dataset, stored.box, stored.first});
    }
    views.add(tensor.name, tensor.type, tensor.shape, sources);
    each();
  }
  views.close();
  hdf5::File file = hdf5::File::edit(path);
  file.set("format", std::string(checkpoint_format));
  file.set("format_version", format_version_of(manifest.tensors));
  file.set("run_uuid", manifest.header.run_uuid);
  file.set("step", manifest.header.step);
  file.set("mesh", manifest.header.mesh);
  if (const auto& job = manifest.header.job) {
    file.set("slurm_job_id", job->id);
    file.set("slurm_restart_count", static_cast<std::int64_t>(job->restarts));
    file.set("slurm_job_nodelist", job->nodes);
  }
  file.set("config", manifest.header.config);
  file.close();
  sync_path(path);
}

}  // namespace lyceum
