#include "io/checkpoint/shard.h"

#include <cstring>
#include <new>
#include <optional>

#include "core/copy.h"
#include "core/error.h"
#include "io/files/atomic_file.h"
#include "io/files/hdf5.h"

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

std::size_t values_in(const CheckpointSlice& slice) { return static_cast<std::size_t>(slice.box.extent.size()); }

}  // namespace

HostCopy::HostCopy(std::span<const CheckpointSlice> from) {
  std::size_t count = 0;
  for (const CheckpointSlice& slice : from) count += values_in(slice);
  try {
    values = std::make_unique_for_overwrite<float[]>(count);
  } catch (const std::bad_alloc&) {
    fail(ExitCode::failed, "not enough memory for a copy of {} bytes: set checkpoint.background = false",
         count * sizeof(float));
  }
  std::span<float> rest(values.get(), count);
  for (const CheckpointSlice& slice : from) {
    const std::span<float> copy = rest.first(values_in(slice));
    copy_values(slice, copy);
    slices.push_back({.name = slice.name, .shape = slice.shape, .box = slice.box, .values = copy.data()});
    rest = rest.subspan(copy.size());
  }
}

void write_shard(const fs::path& path, std::span<const CheckpointSlice> slices, const std::stop_token& stop,
                 const RunOnFiles& run, const std::function<void()>& before_each) {
  std::optional<hdf5::File> file;
  run([&] { file.emplace(hdf5::File::create(path)); });
  std::vector<float> copy;
  for (const CheckpointSlice& slice : slices) {
    if (values_in(slice) == 0) continue;
    require(!stop.stop_requested(), "{}: stopped on request", path.string());
    const float* values = slice.values;
    if (!on_host(slice)) {
      copy.resize(values_in(slice));
      copy_values(slice, copy);
      values = copy.data();
    }
    const std::string name = dataset_name(slice.name, slice.shape, slice.box);
    run([&] {
      before_each();
      file->create_dataset(name, DType::f32, slice.box.extent).write(values);
    });
  }
  run([&] { file->close(); });
}

void write_index(const fs::path& path, const Manifest& manifest, const std::function<void()>& each) {
  hdf5::File file = hdf5::File::create(path);
  file.set("format", std::string(checkpoint_format));
  file.set("format_version", checkpoint_format_version);
  file.set("run_uuid", manifest.header.run_uuid);
  file.set("step", manifest.header.step);
  file.set("mesh", manifest.header.mesh);
  if (const auto& job = manifest.header.job) {
    file.set("slurm_job_id", job->id);
    file.set("slurm_restart_count", static_cast<std::int64_t>(job->restarts));
    file.set("slurm_job_nodelist", job->nodes);
  }
  file.set("config", manifest.header.config);
  std::vector<hdf5::VirtualSource> sources;
  for (const StoredTensor& tensor : manifest.tensors) {
    sources.clear();
    for (const StoredBox& stored : tensor.boxes) {
      sources.push_back({shard_name(static_cast<int>(stored.file)), stored.dataset, stored.box});
    }
    if (sources.empty()) {
      file.create_dataset(tensor.name, DType::f32, tensor.shape);
    } else {
      file.create_virtual(tensor.name, DType::f32, tensor.shape, sources);
    }
    each();
  }
  file.close();
  sync_path(path);
}

}  // namespace lyceum
