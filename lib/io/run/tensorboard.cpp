#include "io/run/tensorboard.h"

#include <boost/crc.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <bit>
#include <cstring>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "io/files/atomic_file.h"
#include "io/text/utf8.h"
#include "parallel/comm/host_name.h"

namespace lyceum {
namespace {

using OrderedJson = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "numbers are written as they are in memory");

template <class Number>
std::string bytes_of(Number number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

// Encoding of protocol buffers: a field is its number and wire type in one varint, then its value.
std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string field(int number, std::int64_t value) {
  return varint(static_cast<std::uint64_t>(number) << 3) + varint(static_cast<std::uint64_t>(value));
}
std::string field(int number, double value) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 1) + bytes_of(value);
}
std::string field(int number, std::string_view bytes) {
  return (varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(bytes.size())).append(bytes);
}
std::string field(int number, float value) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 5) + bytes_of(value);
}

/// Returns the masked CRC-32C of the bytes. TFRecord masks it because a CRC is weak on data that contains a CRC.
std::string checksum(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return bytes_of(std::rotr(static_cast<std::uint32_t>(crc.checksum()), 15) + 0xA282EAD8U);
}

std::string event(double time, std::int64_t step, const std::string& what) {
  const std::string data = field(1, time) + field(2, step) + what;
  const std::string length = bytes_of(static_cast<std::uint64_t>(data.size()));
  return length + checksum(length) + data + checksum(data);
}
std::string file_version() { return field(3, std::string_view("brain.Event:2")); }
std::string session_start() { return field(7, field(1, std::int64_t{1})); }  // SessionLog.status = START
std::string scalar(std::string_view tag, float value) { return field(1, field(1, tag) + field(2, value)); }

/// Returns the tag of a metric. TensorBoard groups the charts of tags with the same word before the slash.
std::string tag_of(const std::string& key) {
  const auto one_of = [&](auto... names) { return ((key == names) || ...); };
  if (key == "loss" || key.ends_with("_loss") || key.starts_with("valid_") || key == "unigram_entropy")
    return "loss/" + key;
  if (key.starts_with("layer_") || key == "largest_logit") return "layers/" + key;
  if (key.ends_with("_norm") || one_of("lr", "skipped", "outliers", "rollbacks", "stage")) return "optimizer/" + key;
  if (one_of("load_imbalance", "idle_experts", "dead_experts", "rank_imbalance", "rank_imbalance_max",
             "rank_imbalance_without_replicas", "replicas"))
    return "routing/" + key;
  return "speed/" + key;
}

/// Returns the path of a new file. TensorBoard reads the files of a folder in the order of their names, which therefore
/// begin with the time in microseconds.
std::filesystem::path new_file(const std::filesystem::path& folder) {
  make_directories(folder);
  return folder / fmt::format("events.out.tfevents.{:.0f}.{}", 1e6 * unix_seconds(), host_name());
}

}  // namespace

TensorBoardLog::TensorBoardLog(const std::filesystem::path& folder, std::int64_t first_step)
    : events_(new_file(folder), 0) {
  const double now = unix_seconds();
  events_.append(event(now, 0, file_version()) + event(now, first_step, session_start()));
}

void TensorBoardLog::append(const OrderedJson& record) {
  std::string scalars;
  for (const auto& [key, value] : record.items()) {
    if (value.is_number() && key != "step" && key != "time")
      scalars += scalar(replace_invalid_utf8(tag_of(key)), value.get<float>());
  }
  events_.append(event(record.at("time").get<double>(), record.at("step").get<std::int64_t>(), field(5, scalars)));
}

}  // namespace lyceum
