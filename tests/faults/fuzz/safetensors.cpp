#include "io/files/safetensors.h"

#include <cstring>

#include "support.h"

/// Reads a file of weights and writes a copy, which must have the same tensors.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  const std::filesystem::path file = fuzz::input_file("model.safetensors", fuzz::text_of(data, size));
  return fuzz::taken_or_refused([&] {
    const safetensors::Reader reader(file);
    std::vector<safetensors::Entry> entries = reader.tensors();
    for (safetensors::Entry& each : entries) {
      const bool written = each.type == safetensors::Type::f32 || each.type == safetensors::Type::bf16;
      if (!written) each.type = safetensors::Type::f32;
    }
    const auto values_of = [](const safetensors::Reader& from, std::size_t tensor) {
      std::vector<float> values(static_cast<std::size_t>(from.tensors()[tensor].shape.size()));
      from.read(from.tensors()[tensor], values);
      return values;
    };
    const std::filesystem::path copy = fuzz::folder() / "copy.safetensors";
    safetensors::Writer writer(copy, entries);
    for (std::size_t i = 0; i < entries.size(); ++i) writer.write(values_of(reader, i));
    writer.finish();
    const safetensors::Reader again(copy);
    fuzz::hold(again.tensors().size() == entries.size(), "tensors are lost");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::vector<float> first = values_of(reader, i), second = values_of(again, i);
      fuzz::hold(again.tensors()[i].name == entries[i].name && again.tensors()[i].shape == entries[i].shape,
                 "the name or shape of a tensor changes");
      for (std::size_t at = 0; at < first.size(); ++at) {
        fuzz::hold(first[at] == second[at] || (first[at] != first[at] && second[at] != second[at]), "a value changes");
      }
    }
  });
}
