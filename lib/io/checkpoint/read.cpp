#include "io/checkpoint/read.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/manifest.h"
#include "io/files/hdf5.h"
#include "io/files/whole_file.h"

namespace lyceum {

namespace {

/// Copies `box` of a row-major array of shape `from_shape` to the box of a row-major array of shape `to_shape` that
/// begins at `offset`.
void copy_box(const float* from, const Shape& from_shape, const Box& box, float* to, const Shape& to_shape,
              const Shape& offset) {
  const int last = box.extent.rank() - 1;
  const std::int64_t row = box.extent[last];
  for (std::int64_t r = 0; r < box.extent.size() / row; ++r) {
    std::int64_t rest = r, at = box.offset[last], to_at = offset[last];
    std::int64_t stride = from_shape[last], to_stride = to_shape[last];
    for (int axis = last - 1; axis >= 0; --axis) {
      const std::int64_t index = rest % box.extent[axis];
      at += (box.offset[axis] + index) * stride;
      to_at += (offset[axis] + index) * to_stride;
      rest /= box.extent[axis];
      stride *= from_shape[axis];
      to_stride *= to_shape[axis];
    }
    std::copy_n(from + at, row, to + to_at);
  }
}

/// Reads a box of a dataset in bf16 into the part of a row-major array of shape `shape` that begins at `offset`. HDF5
/// would convert its own way to the same values, but element by element and much slower.
void read_halves(const hdf5::Dataset& dataset, const Box& box, float* values, const Shape& shape, const Shape& offset) {
  const std::int64_t count = box.extent.size();
  const int last = box.extent.rank() - 1;
  if (count == 0) return;
  std::vector<bfloat16> halves(static_cast<std::size_t>(count));
  dataset.read(box, DType::bf16, halves.data());
  const std::int64_t row = box.extent[last];
  for (std::int64_t r = 0; r < count / row; ++r) {
    std::int64_t rest = r, at = offset[last], stride = shape[last];
    for (int axis = last - 1; axis >= 0; --axis) {
      at += (offset[axis] + rest % box.extent[axis]) * stride;
      rest /= box.extent[axis];
      stride *= shape[axis];
    }
    std::transform(halves.begin() + r * row, halves.begin() + (r + 1) * row, values + at,
                   [](bfloat16 x) { return static_cast<float>(x); });
  }
}

}  // namespace

struct CheckpointReader::Implementation {
  std::filesystem::path directory;
  Manifest manifest;
  bool averages = false;                     // see use_averages()
  std::optional<double> adapter_scale = {};  // see merge_adapters(); no value: adapters are not merged
  std::vector<Entry> unmerged;               // with merged adapters: the tensors that are not merged
  std::mutex mutex;                          // guards the members below
  std::vector<bool> verified;                // per file: its SHA-256 was found correct
  std::size_t most_open = 0;
  std::vector<float> packed_values;  // of the packed box that was read last
  struct PackedDataset {
    hdf5::Dataset dataset;
    Shape shape;
  };
  /// An open shard with its datasets of packed boxes, which stay open since most boxes are in them.
  struct OpenShard {
    std::size_t index;  // in manifest.files
    hdf5::File file;
    std::map<std::string, PackedDataset, std::less<>> packed = {};  // closed before the file
  };
  std::deque<OpenShard> open;  // oldest first

  /// Returns an open shard. Verifies its digest before its first use and closes the oldest one if too many are open.
  /// The reference is valid until the next call. Throws a bad_input Error if the file is damaged.
  OpenShard& shard(std::size_t index) {
    const auto at = std::ranges::find(open, index, &OpenShard::index);
    if (at != open.end()) return *at;
    if (!verified[index]) {
      const std::string problem = file_problem(directory, manifest.files[index]);
      require_input(problem.empty(), "{}", problem);
      verified[index] = true;
    }
    if (open.size() == most_open) open.pop_front();
    return open.emplace_back(OpenShard{index, hdf5::File::open(directory / manifest.files[index].name)});
  }

  /// Returns null if the checkpoint has no file of that name.
  const StoredFile* file(std::string_view name) const {
    const auto at = std::ranges::find(manifest.files, name, &StoredFile::name);
    return at == manifest.files.end() ? nullptr : &*at;
  }

  /// Reads the intersection of the stored box of a tensor of type `type` and the wanted one into `values`, which holds
  /// the wanted box. Returns the number of elements read.
  std::int64_t read_common(const StoredSlice& stored, DType type, const Box& wanted, float* values) {
    const std::optional<Box> common = intersection(stored.box, wanted);
    if (!common) return 0;
    Box source = *common;
    Shape target = common->offset;
    for (int axis = 0; axis < target.rank(); ++axis) {
      source.offset[axis] -= stored.box.offset[axis];
      target[axis] -= wanted.offset[axis];
    }
    OpenShard& from = shard(stored.file);
    if (stored.first) {
      read_packed(from, stored, type);
      copy_box(packed_values.data(), stored.box.extent, source, values, wanted.extent, target);
      return common->extent.size();
    }
    const hdf5::Dataset dataset = from.file.dataset(stored.dataset);
    require_input(dataset.shape() == stored.box.extent, "{}: dataset {} is {}, not {} as in {}",
                  from.file.path().string(), stored.dataset, dataset.shape().text(), stored.box.extent.text(),
                  manifest_name);
    if (type == DType::bf16) {
      read_halves(dataset, source, values, wanted.extent, target);
    } else {
      dataset.read_into(source, DType::f32, values, wanted.extent, target);
    }
    return common->extent.size();
  }

  /// Reads all values of a packed box into packed_values.
  void read_packed(OpenShard& from, const StoredSlice& stored, DType type) {
    auto at = from.packed.find(stored.dataset);
    if (at == from.packed.end()) {
      hdf5::Dataset opened = from.file.dataset(stored.dataset);
      const Shape shape = opened.shape();
      at = from.packed.emplace(stored.dataset, PackedDataset{std::move(opened), shape}).first;
    }
    const auto& [dataset, shape] = at->second;
    const Box range{.offset = {*stored.first}, .extent = {stored.box.extent.size()}};
    require_input(inside(range, shape), "{}: dataset {} is {}, but {} has elements {} of it", from.file.path().string(),
                  stored.dataset, shape.text(), manifest_name, range.text());
    packed_values.resize(static_cast<std::size_t>(range.extent[0]));
    if (type == DType::bf16) {
      read_halves(dataset, range, packed_values.data(), range.extent, {0});
    } else {
      dataset.read(range, DType::f32, packed_values.data());
    }
  }
};

CheckpointReader::CheckpointReader(std::filesystem::path directory, std::size_t open_shards)
    : CheckpointReader(directory, read_manifest(directory), open_shards) {}

CheckpointReader::CheckpointReader(std::filesystem::path directory, Manifest manifest, std::size_t open_shards)
    : implementation_(std::make_unique<Implementation>()) {
  Implementation& self = *implementation_;
  self.manifest = std::move(manifest);
  self.directory = std::move(directory);
  self.most_open = std::max<std::size_t>(1, open_shards);
  self.verified.resize(self.manifest.files.size());
}

CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;

const CheckpointHeader& CheckpointReader::header() const { return implementation_->manifest.header; }
const std::filesystem::path& CheckpointReader::directory() const { return implementation_->directory; }
const std::vector<CheckpointReader::Entry>& CheckpointReader::tensors() const {
  return implementation_->adapter_scale ? implementation_->unmerged : implementation_->manifest.tensors;
}

bool CheckpointReader::has_optimizer_state() const {
  return std::ranges::any_of(implementation_->manifest.tensors,
                             [](const Entry& entry) { return is_optimizer_state(entry.name); });
}

const CheckpointReader::Entry* CheckpointReader::find(const std::string& name) const {
  return implementation_->adapter_scale && is_adapter(name) ? nullptr : find_stored(name);
}

const CheckpointReader::Entry* CheckpointReader::find_stored(const std::string& name) const {
  const std::vector<Entry>& entries = implementation_->manifest.tensors;
  const auto entry_of = [&](const std::string& wanted) {
    const auto at = std::ranges::lower_bound(entries, wanted, {}, &Entry::name);
    return at != entries.end() && at->name == wanted ? &*at : nullptr;
  };
  if (implementation_->averages && !is_optimizer_state(name)) {
    if (const Entry* average = entry_of(std::string(average_prefix).append(name))) return average;
  }
  return entry_of(name);
}

void CheckpointReader::use_averages() {
  const bool any = std::ranges::any_of(implementation_->manifest.tensors,
                                       [](const Entry& e) { return e.name.starts_with(average_prefix); });
  require_usage(any, "{} has no average of its weights: only runs with optim.ema save one", directory().string());
  implementation_->averages = true;
}

bool CheckpointReader::has_adapters() const {
  return std::ranges::any_of(implementation_->manifest.tensors,
                             [](const Entry& entry) { return is_adapter(entry.name); });
}

void CheckpointReader::merge_adapters(double scale) {
  Implementation& self = *implementation_;
  self.unmerged.clear();
  for (const Entry& entry : self.manifest.tensors) {
    const bool of_adapter = is_adapter(entry.name) ||
                            (is_optimizer_state(entry.name) && entry.name.find("/adapters/") != std::string::npos);
    if (!of_adapter) self.unmerged.push_back(entry);
    if (!is_adapter(entry.name)) continue;
    const bool first = entry.name.starts_with(adapter_a_prefix);
    const std::string name = entry.name.substr(adapter_a_prefix.size());
    const Entry* weight = find_stored(name);
    const Entry* a = first ? &entry : find_stored(std::string(adapter_a_prefix) + name);
    const Entry* b = first ? find_stored(std::string(adapter_b_prefix) + name) : &entry;
    const bool fits = weight && a && b && weight->shape.rank() == 2 && a->shape.rank() == 2 && b->shape.rank() == 2 &&
                      a->shape[1] == weight->shape[1] && b->shape[0] == weight->shape[0] && a->shape[0] == b->shape[1];
    require_input(fits, "{}: {} does not belong to an adapter of a matrix of this checkpoint",
                  (self.directory / manifest_name).string(), entry.name);
  }
  self.adapter_scale = scale;
}

void CheckpointReader::read(const std::string& name, const Box& box, float* values) const {
  read_stored(name, box, values);
  const Entry* a = implementation_->adapter_scale ? find_stored(std::string(adapter_a_prefix) + name) : nullptr;
  if (!a || box.extent.size() == 0) return;
  const std::int64_t rank = a->shape[0], rows = box.extent[0], columns = box.extent[1];
  std::vector<float> factor_a(static_cast<std::size_t>(rank * columns)),
      factor_b(static_cast<std::size_t>(rows * rank));
  read_stored(a->name, {.offset = {0, box.offset[1]}, .extent = {rank, columns}}, factor_a.data());
  read_stored(std::string(adapter_b_prefix) + name, {.offset = {box.offset[0], 0}, .extent = {rows, rank}},
              factor_b.data());
  std::vector<double> sum(static_cast<std::size_t>(columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    std::ranges::fill(sum, 0.0);
    for (std::int64_t k = 0; k < rank; ++k) {
      const double factor = *implementation_->adapter_scale * factor_b[static_cast<std::size_t>(i * rank + k)];
      const float* row = factor_a.data() + k * columns;
      for (double& each : sum) each += factor * *row++;
    }
    for (std::int64_t j = 0; j < columns; ++j) {
      float& value = values[i * columns + j];
      value = static_cast<float>(value + sum[static_cast<std::size_t>(j)]);
    }
  }
}

void CheckpointReader::read_stored(const std::string& name, const Box& box, float* values) const {
  Implementation& self = *implementation_;
  const Entry* entry = find_stored(name);
  require_input(entry, "{}: tensor {} is not in this checkpoint", (self.directory / manifest_name).string(), name);
  require_input(inside(box, entry->shape), "{}: tensor {} is {}, but {} was requested",
                (self.directory / manifest_name).string(), name, entry->shape.text(), box.text());
  const std::scoped_lock lock(self.mutex);
  std::int64_t filled = 0;
  for (const StoredSlice& stored : entry->boxes) {
    filled += self.read_common(stored, entry->type, box, values);
  }
  require_input(filled == box.extent.size(), "{}: the boxes of tensor {} do not cover {} exactly once",
                (self.directory / manifest_name).string(), name, box.text());
}

std::string CheckpointReader::tokenizer_sha256() const {
  const StoredFile* const file = implementation_->file(tokenizer_name);
  return file ? file->digest.sha256 : std::string();
}

std::filesystem::path CheckpointReader::tokenizer() const {
  const StoredFile* const file = implementation_->file(tokenizer_name);
  require_input(file, "{} has no {}", implementation_->directory.string(), tokenizer_name);
  const std::string problem = file_problem(implementation_->directory, *file);
  require_input(problem.empty(), "{}", problem);
  return implementation_->directory / file->name;
}

std::string CheckpointReader::transformers() const {
  const StoredFile* const file = implementation_->file(transformers_name);
  if (!file) return {};
  const std::string problem = file_problem(implementation_->directory, *file);
  require_input(problem.empty(), "{}", problem);
  return read_whole_file(implementation_->directory / file->name);
}

std::int64_t CheckpointReader::bytes() const {
  std::int64_t sum = 0;
  for (const StoredFile& file : implementation_->manifest.files) sum += file.digest.bytes;
  return sum;
}

std::string CheckpointReader::problem(Check check) const {
  const Implementation& self = *implementation_;
  if (std::string problem = coverage_problem(self.manifest); !problem.empty()) {
    return (self.directory / manifest_name).string() + ": " + problem;
  }
  for (const StoredFile& file : self.manifest.files) {
    if (std::string problem = file_problem(self.directory, file, check == Check::sizes); !problem.empty())
      return problem;
  }
  return {};
}

}  // namespace lyceum
