#include "io/checkpoint/shard.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

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

void write_shard(const fs::path& path, std::span<const CheckpointSlice> slices, const std::stop_token& stop,
                 const RunOnFiles& run, const std::function<void()>& before_each) {
  std::optional<hdf5::File> file;
  run([&] { file.emplace(hdf5::File::create(path)); });
  std::vector<float> copy;
  std::vector<bfloat16> halves;
  for (const CheckpointSlice& slice : slices) {
    if (values_in(slice) == 0) continue;
    require(!stop.stop_requested(), "{}: stopped on request", path.string());
    const float* values = slice.values;
    if (!on_host(slice)) {
      copy.resize(values_in(slice));
      copy_values(slice, copy);
      values = copy.data();
    }
    const void* written = values;
    if (slice.type == DType::bf16) {
      halves.resize(values_in(slice));
      narrow({values, values_in(slice)}, halves);
      written = halves.data();
    }
    const std::string name = dataset_name(slice.name, slice.shape, slice.box);
    run([&] {
      before_each();
      file->create_dataset(name, slice.type, slice.box.extent).write(Box::whole(slice.box.extent), slice.type, written);
    });
  }
  run([&] { file->close(); });
}

void write_index(const fs::path& path, const Manifest& manifest, const std::function<void()>& each) {
  hdf5::File file = hdf5::File::create(path);
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
  std::vector<hdf5::VirtualSource> sources;
  for (const StoredTensor& tensor : manifest.tensors) {
    sources.clear();
    for (const StoredBox& stored : tensor.boxes) {
      sources.push_back({shard_name(static_cast<int>(stored.file)), stored.dataset, stored.box});
    }
    if (sources.empty()) {
      file.create_dataset(tensor.name, tensor.type, tensor.shape);
    } else {
      file.create_virtual(tensor.name, tensor.type, tensor.shape, sources);
    }
    each();
  }
  file.close();
  sync_path(path);
}

}  // namespace lyceum
