#include "io/files/made_once.h"

#include <chrono>
#include <memory>
#include <thread>

#include "core/error.h"

namespace lyceum {

void make_once(const std::string& path, const std::function<bool()>& usable,
               const std::function<void(PartialFile&)>& write, const std::function<void()>& waits) {
  while (!usable()) {
    const std::unique_ptr<PartialFile> file = PartialFile::open_unless_busy(path);
    if (!file) {
      waits();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    if (usable()) return;  // another process has published it since the first check
    write(*file);
    file->close();
    file->publish();
    require(usable(), "{} was written, but has other contents now", path);
    return;
  }
}

}  // namespace lyceum
