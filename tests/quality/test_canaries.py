"""Canaries are caught on every allocator, and a campaign that cannot see them fails."""

import pytest

from kvoracle.model.campaign import WITNESSES_NEED_OPERATIONS, Plan, Result, conduct
from kvoracle.model.canaries import CANARIES, with_canary
from kvoracle.model.check import as_target
from kvoracle.model.engines import hunt
from kvoracle.model.run import Tally
from kvoracle.model.witnesses import required


@pytest.mark.parametrize("canary", CANARIES)
def test_every_canary_is_caught_soon(canary):
    target = as_target("impl")
    spoiled = target._replace(factory=with_canary(target.factory, canary))

    failure, tally = hunt("walk", spoiled, seed=3, operations_max=2_000)

    assert failure is not None
    assert tally.operations < 2_000


def test_a_surviving_canary_fails_the_campaign(monkeypatch):
    monkeypatch.setattr("kvoracle.model.campaign.CANARIES", (NotACanary,))
    monkeypatch.setattr("kvoracle.model.campaign.CANARY_OPERATIONS_MAX", 200)

    result = conduct(as_target("impl"), Plan({"walk": (200, None)}, seed=1), lambda _: None)

    assert result.survivors == ["NotACanary"]
    assert not result.succeeded(as_target("impl"))


def test_a_witness_never_reached_fails_a_long_campaign_only():
    target = as_target("impl")
    short = Result({"walk": Tally({("create", "ok"): WITNESSES_NEED_OPERATIONS - 1})})
    long = Result({"walk": Tally({("create", "ok"): WITNESSES_NEED_OPERATIONS})})

    assert short.succeeded(target)
    assert not long.succeeded(target)
    assert long.unmet(target) == required(target)


class NotACanary:
    def __init__(self, adapter):
        self.adapter = adapter

    def __getattr__(self, name):
        return getattr(self.adapter, name)
