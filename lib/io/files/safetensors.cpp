#include "io/files/safetensors.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "core/dtype.h"
#include "core/error.h"
#include "core/round_up.h"
#include "io/files/git_lfs.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

namespace lyceum::safetensors {

namespace {

using Json = nlohmann::json;

constexpr std::uint64_t most_header_bytes = 100'000'000;  // the limit of Hugging Face's library
constexpr std::size_t alignment = 8;                      // of the tensors' data, in bytes
constexpr std::array<std::pair<Type, std::string_view>, 5> type_names{
    {{Type::f32, "F32"}, {Type::bf16, "BF16"}, {Type::f16, "F16"}, {Type::f8_e4m3, "F8_E4M3"}, {Type::u8, "U8"}}};
static_assert(std::endian::native == std::endian::little, "numbers are stored in the file as in memory");

/// Converts an IEEE 754 binary16 number: 5 exponent bits, 10 mantissa bits.
float from_half(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  constexpr std::uint32_t exponents = 0x7c00;
  if (magnitude < 0x400u) {  // zero and subnormal numbers: multiples of 2⁻²⁴
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  // The difference of the biased exponents of f32 and f16: for infinity and NaN, or for normal numbers.
  const std::uint32_t bias = magnitude >= exponents ? 255u - 31u : 127u - 15u;
  return std::bit_cast<float>(sign | ((magnitude << 13) + (bias << 23)));
}

/// The values of all numbers of 1 sign bit, 4 exponent bits with a bias of 7, and 3 mantissa bits, without infinities
/// [Micikevicius et al. 2022].
const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all{};
    for (unsigned bits = 0; bits < all.size(); ++bits) {
      const int magnitude = static_cast<int>(bits & 0x7fu), exponent = magnitude >> 3, mantissa = magnitude & 7;
      const float value = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
      all[bits] = (bits & 0x80u) != 0 ? -value : value;
      if (magnitude == 0x7f) all[bits] = std::numeric_limits<float>::quiet_NaN();
    }
    return all;
  }();
  return values;
}

std::int64_t element_bytes(Type type) {
  switch (type) {
    case Type::f32: return 4;
    case Type::f8_e4m3:
    case Type::u8: return 1;
    default: return 2;
  }
}

Type type_of(const std::string& name) {
  const auto known = std::ranges::find(type_names, name, &std::pair<Type, std::string_view>::second);
  require_input(known != type_names.end(), "its type is {}, must be F32, BF16, F16, F8_E4M3 or U8", excerpt(name, 20));
  return known->first;
}

/// Returns the entry of a tensor from its JSON in the header. The tensors' data begins at byte `data` of the file and
/// has `bytes` bytes. Throws a bad_input Error that names the tensor if the entry is invalid.
Entry entry_of(const std::string& name, const Json& json, std::uint64_t data, std::uint64_t bytes) {
  try {
    const std::vector<std::int64_t> extents = Exact(json.at("shape"));
    require_input(
        extents.size() <= Shape::max_rank && std::ranges::all_of(extents, [](auto each) { return each >= 0; }),
        "its shape is {}, must have at most four extents", excerpt(json_text(json.at("shape")), 80));
    const Entry entry{.name = name, .type = type_of(json.at("dtype")), .shape = Shape(std::span(extents))};
    const std::array<std::uint64_t, 2> offsets = Exact(json.at("data_offsets"));
    const auto [begin, end] = offsets;
    require_input(json.at("data_offsets").size() == 2 && begin <= end && end <= bytes,
                  "its bytes {} to {} are outside the data, which has {} bytes", begin, end, bytes);
    std::int64_t elements = 1;
    for (const std::int64_t extent : extents) {
      require_input(!__builtin_mul_overflow(elements, extent, &elements), "a shape {} is too large for any file",
                    entry.shape);
    }
    require_input(elements <= static_cast<std::int64_t>(bytes) &&
                      static_cast<std::uint64_t>(bytes_of(entry.type, entry.shape)) == end - begin,
                  "its shape {} of {} does not match its {} bytes", entry.shape, name_of(entry.type), end - begin);
    return {.name = name, .type = entry.type, .shape = entry.shape, .begin = data + begin};
  } catch (const std::exception& problem) {
    fail(ExitCode::bad_input, "tensor {}: {}", excerpt(name), excerpt(problem.what(), 200));
  }
}

/// Throws a bad_input Error unless the tensors fill bytes [at, end) of the file without gaps or overlaps.
void require_gapless(std::vector<Entry> tensors, std::uint64_t at, std::uint64_t end) {
  std::ranges::sort(tensors, {}, [](const Entry& each) { return std::pair(each.begin, each.shape.size()); });
  for (const Entry& each : tensors) {
    require_input(each.begin == at, "tensor {} begins {} byte {}, where the previous one ends", excerpt(each.name),
                  each.begin < at ? "before" : "after", at);
    at += static_cast<std::uint64_t>(bytes_of(each.type, each.shape));
  }
  require_input(at == end, "its tensors end at byte {}, but the file has {}", at, end);
}

std::vector<Entry> read_header(const InputFile& file) {
  constexpr std::uint64_t prefix = sizeof(std::uint64_t);
  require_input(file.size() >= prefix, "it has only {} bytes", file.size());
  std::string beginning(std::min<std::uint64_t>(file.size(), 64), '\0');
  file.read_values(0, std::span(beginning));
  require_input(!is_lfs_pointer(beginning), "it is {}", lfs_pointer_advice);
  const auto length = file.get<std::uint64_t>(0);
  require_input(length <= std::min(most_header_bytes, file.size() - prefix),
                "its header would have {} bytes, but a file of {} can contain at most {}", length, file.size(),
                std::min(most_header_bytes, file.size() - prefix));
  std::string text(length, '\0');
  file.read_values(prefix, std::span(text));
  require_shallow(text);
  const Json header = Json::parse(text);
  require_input(header.is_object(), "its header is not an object");
  const std::uint64_t data = prefix + length, bytes = file.size() - data;
  std::vector<Entry> tensors;
  for (const auto& [name, json] : header.items()) {
    if (name != "__metadata__") tensors.push_back(entry_of(name, json, data, bytes));
  }
  require_gapless(tensors, data, file.size());
  return tensors;
}

template <class T>
void write_rounded(PartialFile& file, std::span<const float> values) {
  constexpr std::size_t at_once = std::size_t{1} << 16;
  std::vector<T> rounded;
  while (!values.empty()) {
    const auto part = values.first(std::min(at_once, values.size()));
    rounded.clear();
    for (const float value : part) rounded.push_back(round_to<T>(value));
    file.write_values(std::span<const T>(rounded));
    values = values.subspan(part.size());
  }
}

}  // namespace

std::string_view name_of(Type type) {
  return std::ranges::find(type_names, type, &std::pair<Type, std::string_view>::first)->second;
}

std::int64_t bytes_of(Type type, const Shape& shape) { return shape.size() * element_bytes(type); }

Reader::Reader(const std::filesystem::path& file)
    : file_(file.string(), "name a folder that contains a model in safetensors") {
  try {
    tensors_ = read_header(file_);
  } catch (const std::exception& problem) {
    fail(ExitCode::bad_input, "{} is not a valid safetensors file: {}", path(), excerpt(problem.what(), 300));
  }
  std::ranges::sort(tensors_, {}, &Entry::name);
}

void Reader::read(const Entry& tensor, std::span<float> values) const {
  require(std::ssize(values) == tensor.shape.size(), "memory for {} values does not fit {} {}", values.size(),
          tensor.name, tensor.shape);
  read(tensor, 0, values);
}

namespace {

/// Returns the offset in the file of element `first` of a tensor. Throws an Error unless it has `count` elements from
/// there on.
std::uint64_t begin_of(const Entry& tensor, std::int64_t first, std::size_t count) {
  require(first >= 0 && first + static_cast<std::int64_t>(count) <= tensor.shape.size(),
          "{} {} does not have elements {} to {}", tensor.name, tensor.shape, first,
          first + static_cast<std::int64_t>(count));
  return tensor.begin + static_cast<std::uint64_t>(first * element_bytes(tensor.type));
}

}  // namespace

void Reader::read_bytes(const Entry& tensor, std::int64_t first, std::span<std::uint8_t> values) const {
  require(tensor.type == Type::u8, "{} is not a tensor of bytes", tensor.name);
  file_.read_values(begin_of(tensor, first, values.size()), values);
}

void Reader::read(const Entry& tensor, std::int64_t first, std::span<float> values) const {
  const std::uint64_t begin = begin_of(tensor, first, values.size());
  if (tensor.type == Type::f32) return file_.read_values(begin, values);
  if (element_bytes(tensor.type) == 1) {
    const std::array<float, 256>& e4m3 = e4m3_values();
    FileValues<std::uint8_t> stored(file_, begin, std::ssize(values));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint8_t bits = stored[static_cast<std::int64_t>(i)];
      values[i] = tensor.type == Type::u8 ? bits : e4m3[bits];
    }
    return;
  }
  FileValues<std::uint16_t> stored(file_, begin, std::ssize(values));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = stored[static_cast<std::int64_t>(i)];
    values[i] = tensor.type == Type::f16 ? from_half(bits) : static_cast<float>(std::bit_cast<bfloat16>(bits));
  }
}

Writer::Writer(const std::filesystem::path& file, std::vector<Entry> tensors)
    : file_(file.string()), tensors_(std::move(tensors)) {
  Json header{{"__metadata__", {{"format", "pt"}}}};
  std::int64_t at = 0;
  for (const Entry& each : tensors_) {
    const std::int64_t end = at + bytes_of(each.type, each.shape);
    header[each.name] = {{"dtype", name_of(each.type)}, {"shape", each.shape.extents()}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = json_text(header);
  text.resize(round_up(text.size(), alignment), ' ');
  file_.write_value(std::uint64_t{text.size()});
  file_.write(text.data(), text.size());
}

void Writer::write(std::span<const float> values) {
  const Entry& tensor = tensors_.at(written_);
  elements_ += std::ssize(values);
  require(elements_ <= tensor.shape.size(), "{} values do not fit {} {}", elements_, tensor.name, tensor.shape);
  if (elements_ == tensor.shape.size()) {
    ++written_;
    elements_ = 0;
  }
  switch (tensor.type) {
    case Type::f32: return file_.write(values.data(), values.size_bytes());
    case Type::bf16: return write_rounded<bfloat16>(file_, values);
    case Type::f16:
    case Type::f8_e4m3:
    case Type::u8: fail(ExitCode::failed, "{}: {} cannot be written", tensor.name, name_of(tensor.type));
  }
}

void Writer::finish() {
  require(written_ == tensors_.size(), "only {} of {} tensors were written", written_, tensors_.size());
  file_.close();
  file_.publish();
}

}  // namespace lyceum::safetensors
