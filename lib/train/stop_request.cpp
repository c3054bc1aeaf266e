#include "train/stop_request.h"

#include <csignal>

namespace lyceum {

namespace {
volatile std::sig_atomic_t stop_signal_came = 0;  // a handler can reach nothing but static storage
}  // namespace

StopRequest::StopRequest() {
  stop_signal_came = 0;
  std::signal(SIGUSR1, [](int) { stop_signal_came = 1; });
}

StopRequest::~StopRequest() { std::signal(SIGUSR1, SIG_IGN); }

bool StopRequest::made() const { return stop_signal_came != 0; }

}  // namespace lyceum
