#include <filesystem>

#include "convert/hugging_face/model_folder.h"
#include "support.h"

/// Opens a model whose model.safetensors.index.json has these bytes; config.json and the weights are valid.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  [[maybe_unused]] static const bool ready = [] {
    const std::filesystem::path corpus = LYCEUM_CORPUS;
    std::filesystem::copy_file(corpus / "hf_config/seed-llama", fuzz::folder() / hugging_face::config_name);
    std::filesystem::copy_file(corpus / "safetensors/seed-three", fuzz::folder() / hugging_face::weights_name);
    hugging_face::ModelFolder{fuzz::folder()};  // throws if anything but the index would be refused
    return true;
  }();
  fuzz::input_file(hugging_face::index_name, fuzz::text_of(data, size));
  return fuzz::taken_or_refused([] {
    const hugging_face::ModelFolder model(fuzz::folder());
    fuzz::hold(model.tensors().empty() || model.tensors().size() == 3, "the index adds or removes tensors");
  });
}
