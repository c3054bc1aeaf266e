#include "apps/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <string>

#include "core/error.h"
#include "core/printable.h"
#include "io/files/system_reason.h"
#include "io/text/console.h"

namespace lyceum {

namespace {

void require_written(bool written) {
  const int error = errno;
  if (written) return;
  if (error == EPIPE) {  // reached only if SIGPIPE was ignored
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  fail(ExitCode::failed, "standard output cannot be written: {}", system_reason(error));
}

void print_bytes(std::string_view bytes) {
  require_written(std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size() && std::fflush(stdout) == 0);
}

}  // namespace

void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF) open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void print(std::string_view text) { print_bytes(printable_lines(text)); }

void print_exactly(std::string_view text) {
  static const bool terminal = terminal_columns() > 0;
  if (terminal) {
    print(text);
  } else {
    print_bytes(text);
  }
}

void flush_output() {
  const bool earlier = std::ferror(stdout) == 0 && std::cout.flush().good();
  require_written(std::fflush(stdout) == 0);
  require(earlier, "standard output could not be written");
}

}  // namespace lyceum
