"""Allocators that a user might bring, each broken in its own way."""

import os
import signal
import time

from kvoracle.model.adapters.base import Adapter
from kvoracle.model.adapters.impl import ImplAdapter


class Crashes(ImplAdapter):
    def fork(self, parent, child):
        os.kill(os.getpid(), signal.SIGSEGV)


class Hangs(ImplAdapter):
    def pin(self, request, transfer):
        while True:
            time.sleep(0.01)


class Exits(ImplAdapter):
    def release(self, request):
        os._exit(7)


class Raises(ImplAdapter):
    def fork(self, parent, child):
        raise IndexError("list index out of range")


class LosesTheLastToken(ImplAdapter):
    def append(self, request, tokens):
        outcome = super().append(request, tokens)
        if len(tokens) > 1 and hasattr(outcome, "slots"):
            outcome.slots[request][-1] = outcome.slots[request][0]
        return outcome


class CannotBeMade(ImplAdapter):
    def __init__(self, config):
        raise RuntimeError("no device")


class CannotDoAnything(Adapter):
    pass


def a_factory(config):
    return ImplAdapter(config)


def makes_something_else(config):
    return object()


not_callable = 3
