"""Runs several processes of `lyceum` at the same time, and ends all of them cleanly on a signal."""
import functools
import os
import signal
import subprocess
import threading

from errors import Failed


class Stopped(Exception):
    """A signal stopped the program; checkpoints are saved."""


class Program:
    def __init__(self, path: str):
        self.path = path
        self._children: set[subprocess.Popen] = set()
        self._lock = threading.RLock()  # reentrant, since a signal may be handled while it is held
        self._stopping = False
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}

    def run(self, *arguments: str) -> str:
        """Runs `lyceum ARGUMENTS` and returns its output."""
        return self._run(arguments)[0]

    def messages(self, *arguments: str) -> str:
        """Runs `lyceum ARGUMENTS` and returns what it writes to standard error."""
        return self._run(arguments)[1]

    def _run(self, arguments: tuple[str, ...]) -> tuple[str, str]:
        with self._lock:
            self.require_wanted()
            process = subprocess.Popen([self.path, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       env=self._environment, start_new_session=True)
            self._children.add(process)
            if self._stopping:  # a signal was handled by this thread after require_wanted()
                process.terminate()
        try:
            out, err = process.communicate()
        finally:
            with self._lock:
                self._children.discard(process)
        if process.returncode == 75 or (self._stopping and process.returncode):
            raise Stopped
        if process.returncode:
            raise Failed(f"lyceum {' '.join(arguments)}\n{err.strip()}", process.returncode if process.returncode > 0 else 1)
        return out, err

    @functools.cached_property
    def version(self) -> str:
        """The version of the program with its commit."""
        return self.run("--version").splitlines()[0]

    def require_wanted(self) -> None:
        if self._stopping:
            raise Stopped

    def stop(self) -> None:
        """Requests all processes to save and end; in the second call, to end at once."""
        with self._lock:
            for process in self._children:
                self._signal(process)
            self._stopping = True

    def _signal(self, process: subprocess.Popen) -> None:
        saves = "train" in process.args and not self._stopping
        process.send_signal(signal.SIGUSR1 if saves else signal.SIGTERM)

    @property
    def stopping(self) -> bool:
        return self._stopping
