#include "parallel/comm/deadline.h"

#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "core/error.h"

namespace lyceum {

Deadline::Deadline(double seconds, std::string line, std::function<bool()> may_print)
    : thread_([seconds, line = std::move(line) + "\n", may_print = std::move(may_print)](const std::stop_token& stop) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are handled by the program's own threads
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable_any never;
        never.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
        if (stop.stop_requested()) return;
        if (!may_print || may_print()) {
          std::fputs(line.c_str(), stderr);
          std::fflush(stderr);
        } else {
          std::this_thread::sleep_for(std::chrono::minutes(1));
        }
        std::_Exit(static_cast<int>(ExitCode::failed));
      }) {}

}  // namespace lyceum
