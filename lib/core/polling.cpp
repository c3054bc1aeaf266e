#include "core/polling.h"

#include <sched.h>

#include <chrono>
#include <thread>

namespace lyceum {

void pause_polling(double waited) {
  constexpr double spin = 20e-6, yield = 20e-3;
  if (waited < spin) return;
  if (waited < yield) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace lyceum
