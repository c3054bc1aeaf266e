#include "parallel/comm/deadline.h"

#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "core/error.h"

namespace lyceum {

Deadline::Deadline(double seconds, std::string line)
    : thread_([seconds, line = std::move(line) + "\n"](const std::stop_token& stop) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are for the program's own threads
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable_any never;
        never.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
        if (stop.stop_requested()) return;
        std::fputs(line.c_str(), stderr);
        std::fflush(stderr);
        std::_Exit(static_cast<int>(ExitCode::failed));
      }) {}

}  // namespace lyceum
