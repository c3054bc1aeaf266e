#include "parallel/comm/process_state.h"

#include <sys/stat.h>

#include <fstream>
#include <string>

namespace lyceum {

std::uint64_t process_space() {
  struct stat space {};
  return stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
}

char process_state(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return '0';
  const std::size_t name_end = text.rfind(')');  // "4711 (lyceum) S …"
  return name_end != std::string::npos && name_end + 2 < text.size() ? text[name_end + 2] : '?';
}

}  // namespace lyceum
