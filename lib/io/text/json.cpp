#include "io/text/json.h"

namespace lyceum {

void require_shallow(std::string_view json) {
  constexpr int deepest = 16;
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      require_input(++depth <= deepest, "damaged: it nests deeper than {} levels", deepest);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

}  // namespace lyceum
