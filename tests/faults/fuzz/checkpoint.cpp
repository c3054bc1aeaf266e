#include "io/checkpoint/checkpoint.h"

#include "io/checkpoint/manifest.h"
#include "io/files/whole_file.h"
#include "support.h"

namespace lyceum::fuzz {
namespace {

/// A checkpoint of one rank, whose shard the target replaces.
struct SavedCheckpoint {
  std::filesystem::path directory = folder() / checkpoint_name(1), shard = directory / shard_name(0);
  std::string bytes;  // of the shard
  Manifest manifest;

  SavedCheckpoint() {
    const std::vector<float> values{0, 1, 2, 3, 4, 5};
    const std::vector<CheckpointSlice> slices{
        {.name = "model/norm/weight", .shape = {6}, .box = Box::whole({6}), .values = values.data()},
        {.name = "w", .shape = {2, 3}, .box = Box::whole({2, 3}), .values = values.data()}};
    write_checkpoint(ProcessGroup::self(), folder(),
                     {.run_uuid = "f00d", .step = 1, .mesh = "", .config = "", .trainer_state = "{}"}, slices);
    bytes = read_whole_file(shard);
    manifest = read_manifest(directory);
  }
};

void read_all(const SavedCheckpoint& saved) {
  const CheckpointReader reader(saved.directory);
  for (const CheckpointReader::Entry& tensor : reader.tensors()) {
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.size()));
    reader.read(tensor.name, Box::whole(tensor.shape), values.data());
  }
}

}  // namespace
}  // namespace lyceum::fuzz

/// Reads a checkpoint whose shard has these bytes: first as a damaged shard, which its digest must reveal before HDF5
/// opens it; then as a forged shard with the right digest.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  fuzz::reuse_hdf5_memory();
  static const fuzz::SavedCheckpoint saved;
  const std::string_view bytes = fuzz::text_of(data, size);
  fuzz::input_file(saved.shard, bytes);
  fuzz::input_file(saved.directory / manifest_name, manifest_text(saved.manifest));
  fuzz::hold(fuzz::refused([&] { fuzz::read_all(saved); }) == (bytes != saved.bytes),
             "a damaged shard is accepted, or an intact one refused");
  Manifest forged = saved.manifest;
  for (StoredFile& file : forged.files) {
    if (file.name == shard_name(0)) file.digest = digest_of_file(saved.shard);
  }
  fuzz::input_file(saved.directory / manifest_name, manifest_text(forged));
  return fuzz::taken_or_refused([&] { fuzz::read_all(saved); });
}
