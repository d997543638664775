"""The command line: which commands there are, and how their failures end the process.

Each command lives in a module of its own that is imported when the command runs, so that `--help` and `inspect` start
fast and touch no accelerator. Invariant: bad usage and bad input end with one line on stderr and status 2.
"""

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, UnknownCommandError

from ninfer import __version__
from ninfer.cli.failure import BAD_USAGE_STATUS, FAILED_STATUS, INTERRUPTED_STATUS, Failure


def build_app() -> App:
    """The application with all commands."""
    app = App(
        name="ninfer",
        help="A local LLM server for one accelerator and a few demanding users.",
        version=__version__,
        suppress_keyboard_interrupt=False,
    )
    app.command("ninfer.cli.serve:serve", name="serve", help="Serve a model over HTTP.")
    app.command("ninfer.cli.chat:chat", name="chat", help="Talk to a running server.")
    app.command("ninfer.cli.convert:convert", name="convert", help="Turn a Hugging Face folder into an artifact.")
    app.command("ninfer.cli.selftest:selftest", name="selftest", help="Check what a model computes on this device.")
    app.command("ninfer.cli.bench:bench", name="bench", help="Measure what decoding and prompts cost on this device.")
    app.command("ninfer.cli.inspect:inspect", name="inspect", help="Show what an artifact holds.")
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` (default: those of the process) ask for, then exit."""
    try:
        build_app()(
            None if arguments is None else list(arguments),
            exit_on_error=False,
            print_error=False,
            result_action="return_none",
        )
        sys.stdout.flush()
    except UnknownCommandError as error:
        # Its own text would import every command to look for similar names.
        _fail(f"there is no command {(error.unused_tokens or ['?'])[0]!r}; --help lists them")
    except CycloptsError as error:
        _fail(" ".join(str(error).split()))
    except Failure as failure:
        _fail(str(failure))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_STATUS)
    except BrokenPipeError:
        # The reader of a pipe has gone; what is still buffered must not fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED_STATUS)


def _fail(line: str) -> None:
    from ninfer.engine.artifact.errors import one_line  # where something is wrong, NumPy may be imported

    print(f"ninfer: {one_line(line)}", file=sys.stderr)
    sys.exit(BAD_USAGE_STATUS)
