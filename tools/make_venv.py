"""The virtual environment of `make`: says what it does, keeps the line moving on a terminal, leaves nothing half-made.

    python3 tools/make_venv.py .venv [--extra dev]

A folder that is being made holds `.unfinished` until the installation has succeeded; the next run begins such a folder
anew. Runs before anything is installed, on any Python from 3.6 on, so standard library and old syntax alone: its first
task is to say in plain words that a Python is too old.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time

LEAST = (3, 11)
NEWEST_FIRST = ("python3.13", "python3.12", "python3.11")
UNFINISHED = ".unfinished"
SHOWN_LINES = 15
"""Of pip's output, when it fails"""

INSTALL = ("-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off")
_PROBE = "import sys, ensurepip; print(*sys.version_info[:3], sep='.')"


class Refused(Exception):
    """One line for the user."""


def version_text(version: tuple) -> str:
    """3.11 of (3, 11)."""
    return ".".join(map(str, version))


def version_of(python: str):
    """The version of an interpreter as a tuple, or None if it does not run or cannot make environments."""
    try:
        said = subprocess.run([python, "-c", _PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
        return tuple(map(int, said.stdout.decode().split(".")))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def check_version(version: tuple, python: str, probe=version_of) -> None:
    """Refuse a Python that is too old, and name one that is not, if there is one.

    Raises:
        Refused: `version` is below 3.11.
    """
    if version >= LEAST:
        return
    good = next((name for name in NEWEST_FIRST if (probe(name) or (0,)) >= LEAST), None)
    advice = "install a newer one" if good is None else f"`make serve PYTHON={good}` takes a newer one"
    raise Refused(
        f"NInfer needs Python {version_text(LEAST)} or newer, and {python} is Python {version_text(version)}: {advice}"
    )


def has_to_be_made(folder: str, probe=version_of) -> bool:
    """Whether `folder` is not there. What an earlier run left unfinished is removed.

    Raises:
        Refused: it is there, is not ours to remove, and cannot be used.
    """
    if os.path.exists(os.path.join(folder, UNFINISHED)):
        shutil.rmtree(folder)
    if not os.path.exists(folder):
        return True
    version = probe(os.path.join(folder, "bin", "python"))
    if version is None:
        raise Refused(f"{folder} has no Python that runs: remove it (rm -r {folder}) and try again")
    if version < LEAST:
        raise Refused(
            f"{folder} has Python {version_text(version)}, and NInfer needs {version_text(LEAST)} or newer: "
            f"remove it (rm -r {folder}) and try again"
        )
    return False


class Times:
    """How long each step took last time, in the user's cache folder; without one nothing is remembered."""

    def __init__(self, folder: str) -> None:
        self._file = os.path.join(folder, "make-seconds.json")

    def last(self, step: str):
        """Seconds, or None."""
        seconds = self._read().get(step)
        return seconds if isinstance(seconds, (int, float)) else None

    def note(self, step: str, seconds: float) -> None:
        """Remember; what cannot be written is forgotten."""
        known = self._read()
        known[step] = round(seconds, 1)
        try:
            os.makedirs(os.path.dirname(self._file), exist_ok=True)
            with open(self._file, "w") as file:
                json.dump(known, file)
        except OSError:
            pass

    def _read(self) -> dict:
        try:
            with open(self._file) as file:
                found = json.load(file)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


class Line:
    """What is being done, on one line: moving on a terminal, printed once elsewhere."""

    def __init__(self, text: str, out) -> None:
        self._text = text
        self._out = out
        self._detail = ""
        self._begin = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._move, daemon=True) if out.isatty() else None

    def __enter__(self):
        if self._thread is None:
            print(self._text, file=self._out, flush=True)
        else:
            self._thread.start()
        return self

    def __exit__(self, kind, error, trace) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            print("\r\033[K" + self._text, file=self._out, flush=True)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begin

    def tell(self, detail: str) -> None:
        """What the step is at."""
        self._detail = " ".join(detail.split())

    def _move(self) -> None:
        while not self._over.wait(0.2):
            shown = f"{self._text}: {self.seconds:.0f} s  {self._detail}"
            print("\r\033[K" + shown[: shutil.get_terminal_size().columns - 1], end="", file=self._out, flush=True)


def run(text: str, step: str, command: list, times: Times, out) -> None:
    """Run `command`, which takes a while.

    Raises:
        Refused: it failed; what it said last is shown before.
    """
    last = times.last(step)
    said = []
    with Line(text if last is None else f"{text} ({last:.0f} s last time)", out) as line:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
            for raw in child.stdout or ():
                said.append(raw.decode("utf-8", "replace").rstrip())
                line.tell(said[-1])
        seconds = line.seconds
    if child.returncode:
        print("\n".join(said[-SHOWN_LINES:]), file=out)
        raise Refused(f"this failed: {' '.join(command)}")
    print(f"  done in {seconds:.1f} s", file=out, flush=True)
    times.note(step, seconds)


def make(folder: str, extra, times: Times, out=sys.stderr, run=run, version=sys.version_info[:3]) -> None:
    """Make `folder` if it is not there, and install this project into it.

    Raises:
        Refused: for one of the reasons above.
    """
    python, mark = os.path.join(folder, "bin", "python"), os.path.join(folder, UNFINISHED)
    new = has_to_be_made(folder)
    if new:
        check_version(version, sys.executable)
        os.makedirs(folder)
        open(mark, "w").close()
        text = f"making {folder} with Python {version_text(version)}"
        run(text, "venv", [sys.executable, "-m", "venv", folder], times, out)
    extras = f"[{extra}]" if extra else ""
    # A module is compiled when it is first imported, and most never are; but where Python is told to keep no compiled
    # modules every process would compile them again.
    options = () if sys.dont_write_bytecode else ("--no-compile",)
    text = f"installing ninfer{extras} and what it needs into {folder}"
    run(text, f"install {extras}", [python, *INSTALL, *options, "-e", f".{extras}"], times, out)
    if new:
        os.remove(mark)


def main() -> None:
    """Do what the command line says; status 2 and one line where that cannot be."""
    parser = argparse.ArgumentParser(description="Make the virtual environment that `make` uses.")
    parser.add_argument("folder")
    parser.add_argument("--extra", help="optional dependencies to install too")
    given = parser.parse_args()
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    try:
        make(given.folder, given.extra, Times(os.path.join(cache, "ninfer")))
    except Refused as refused:
        sys.exit(f"make: {refused}")
    except KeyboardInterrupt:
        sys.exit("\nmake: stopped; the next run makes it anew")


if __name__ == "__main__":
    main()
