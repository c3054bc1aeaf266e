#include "core/polling.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace lyceum {

std::chrono::microseconds polling_pause(double waited) {
  if (waited < 20e-3) return {};
  return std::chrono::microseconds(static_cast<std::int64_t>(std::clamp(waited / 64, 50e-6, 5e-3) * 1e6));
}

void pause_polling(double waited) {
  if (waited < 20e-6) return;
  const std::chrono::microseconds pause = polling_pause(waited);
  if (pause == pause.zero()) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace lyceum
