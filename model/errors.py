"""Bad input of any kind: one sentence that says what to do instead, exit code 2, nothing changed."""


class UsageError(Exception):
    """The user's argument or file is wrong; the message is one sentence and says what to do instead."""
