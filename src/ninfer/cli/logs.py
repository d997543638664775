"""Log records on stderr: `YYYY-MM-DD HH:MM:SS.mmm LEVEL message`. It knows no record in particular."""

import logging
import sys

TRACE = 5
_LEVELS = {
    "trace": TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "off": logging.CRITICAL + 1,
}


class _Stderr(logging.Handler):
    """Writes to what stderr is at the moment: a line that moves on a terminal puts itself below what is written."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def log_to_stderr(level: str) -> None:
    """Send all records of this package and of its libraries' warnings to stderr. Called once a process."""
    logging.addLevelName(TRACE, "TRACE")
    handler = _Stderr()
    handler.setFormatter(
        logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(message)s", datefmt="%Y-%m-%d %H:%M:%S")
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(_LEVELS[level], logging.WARNING))
    logging.getLogger("ninfer").setLevel(_LEVELS[level])
