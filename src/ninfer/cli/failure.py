"""How a command ends when its user has to change something: one line on stderr and status 2."""


class Failure(Exception):
    """A command cannot do what was asked; the text is one line that says what is wrong and where."""
