#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <filesystem>

#include "io/files/appended_file.h"

namespace lyceum {

/// Writes metrics records as scalars to an event file for TensorBoard. Only one rank may have it.
///
/// The file is a TFRecord of `Event` messages in protocol buffers' wire format. Each record consists of its length
/// (u64), the masked CRC-32C of the length, the data, and the masked CRC-32C of the data, all little-endian.
/// [tensorflow/core/lib/io/record_writer.cc, tensorflow/core/util/event.proto]
class TensorBoardLog {
 public:
  /// Creates a new file in `folder`, and the folder if it is missing. TensorBoard then ignores values from `first_step`
  /// on in older files, since a resumed run computes them again. Throws as AppendedFile does.
  TensorBoardLog(const std::filesystem::path& folder, std::int64_t first_step);

  /// Writes all numbers of `record`, which must have an integer "step" and "time" in seconds since 1970. Tags are keys
  /// with their group in front, such as "loss/valid_loss". Throws as AppendedFile::append() does; the record is then
  /// written by the next successful call.
  void append(const nlohmann::ordered_json& record);

 private:
  AppendedFile events_;
};

}  // namespace lyceum
