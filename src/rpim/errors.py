"""The errors a user can do something about."""


class InputError(ValueError):
    """What was given cannot be used.

    The message is one sentence for the user: what was given, what is wrong with it, and what to do. The command
    line prints it without a traceback and exits with 2.
    """


BAD_INPUT, FAILURE = 2, 1
"""The exit codes of the commands: what the user can mend, and what they cannot."""
