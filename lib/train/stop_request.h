#pragma once

namespace lyceum {

/// Turns SIGUSR1 (what mpirun forwards and a scheduler sends before a limit) into a request to save and stop, for as
/// long as it lives. One object a process.
class StopRequest {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;
  /// Whether this rank got the signal.
  bool made() const;
};

}  // namespace lyceum
