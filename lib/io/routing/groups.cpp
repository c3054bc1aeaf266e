#include "io/routing/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace lyceum {

std::string group_of(const MixtureId& id) {
  return fmt::format("/layers/{:03}{}", id.layer, id.site == Site::attention ? "/attention" : "");
}

std::vector<MixtureId> routers_in(const hdf5::File& file) {
  std::vector<MixtureId> routers;
  for (const std::string& name : file.children("/layers")) {
    const std::string path = "/layers/" + name;
    require_input(name.size() >= 3 && name.find_first_not_of("0123456789") == std::string::npos && name.size() < 10,
                  "{}: the name {} is not a layer's index", file.path().string(), path);
    const std::int64_t layer = std::stoll(name);
    const bool attention = file.has(path + "/attention");
    if (attention) routers.push_back({layer, Site::attention});
    if (!attention || file.children(path).size() > 1) routers.push_back({layer, Site::ffn});
  }
  std::ranges::sort(routers);
  return routers;
}

hdf5::Dataset create_scale(hdf5::File& file, const std::string& path, std::int64_t count, const std::string& name) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  hdf5::Dataset scale = file.create_dataset(path, DType::i64, {count});
  scale.write(numbers.data());
  scale.set("units", "1");
  scale.make_scale(name);
  return scale;
}

}  // namespace lyceum
