#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <filesystem>

#include "io/files/appended_file.h"

namespace lyceum {

/// A file of events that TensorBoard shows: the numbers of metrics records as scalars. One rank owns it.
///
/// The file is a TFRecord (u64 length, masked CRC-32C of it, data, masked CRC-32C of the data; little-endian) of
/// `Event` messages in protocol buffers' wire format [tensorflow/core/lib/io/record_writer.cc,
/// tensorflow/core/util/event.proto].
class TensorBoardLog {
 public:
  /// Makes a new file in `folder`, which is made when missing. Of the files before it TensorBoard leaves out what they
  /// have of `first_step` and later ones, which a resumed run does again. Throws as AppendedFile does.
  TensorBoardLog(const std::filesystem::path& folder, std::int64_t first_step);

  /// Adds all numbers of `record`, which has an integer "step" and "time" in seconds since 1970. Tags are keys with
  /// their group before them, such as "loss/valid_loss". Throws as AppendedFile::append does, and forgets nothing.
  void append(const nlohmann::ordered_json& record);

 private:
  AppendedFile events_;
};

}  // namespace lyceum
