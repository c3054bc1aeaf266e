#include "config/binding.h"
#include "config/check.h"
#include "convert/hugging_face/model_folder.h"
#include "support.h"

/// Imports a config.json of the transformers library. If it is accepted, its export must describe the same model.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  const std::filesystem::path file = fuzz::input_file("config.json", fuzz::text_of(data, size));
  fuzz::refused([&] { hugging_face::ModelFolder{fuzz::folder()}; });  // without weights
  return fuzz::taken_or_refused([&] {
    const hugging_face::Json json = hugging_face::read_object(file);
    for (const hugging_face::Architecture& architecture : hugging_face::architectures()) {
      fuzz::taken_or_refused([&] {
        Config config = config_of(architecture, json);
        require_none(contradictions(config, 1));
        resolve(config, 1);
        Config again = config_of(architecture, json_of(architecture, config));
        resolve(again, 1);
        fuzz::hold(differences(config, again).empty(), "a model changes when it is written and read");
      });
    }
  });
}
