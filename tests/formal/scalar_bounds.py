"""Where both rooms are compared: small numbers, so that all of them can be gone through."""

import functools

TABLE = (5, 2)
LARGEST = (9, 4, 2)
"""Of each argument; numpy takes plain numbers only, so each value is a path of its own."""


def bounded(function):
    """The function on plain numbers from -1 to the largest; None elsewhere, and where it refuses."""

    @functools.wraps(function)
    def answer(*arguments):
        plain = []
        for argument, largest in zip(arguments, LARGEST, strict=False):
            value = next((value for value in range(-1, largest + 1) if argument == value), None)
            if value is None:
                return None
            plain.append(value)
        try:
            return function(*plain)
        except ValueError:
            return None

    return answer
