"""How commands end: the statuses of the process, and the error whose text is all that its user gets to see.

A `Failure` ends in one line on stderr and `BAD_USAGE_STATUS`. It knows no command.
"""

import signal

FAILED_STATUS = 1
"""The command was done, and what it was about is not well: a check has failed, the device is lost."""
BAD_USAGE_STATUS = 2
INTERRUPTED_STATUS = 128 + signal.SIGINT
TERMINATED_STATUS = 128 + signal.SIGTERM


class Failure(Exception):
    """A command cannot do what was asked; the text is one line that says what is wrong and where."""
