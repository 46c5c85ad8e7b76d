"""The JSON schema of a trace, made from the types that read it.

`python -m kvoracle.model.schema FILE` writes it; a test holds `seeds/schema.json` against it.
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from kvoracle.model.trace import VERSION, Trace

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """What a trace looks like; that sizes fit each other is checked where a trace is read."""
    made = {"$schema": DIALECT, **msgspec.json.schema(Trace)}
    trace = made["$defs"]["Trace"]
    trace["properties"]["version"] = {"const": VERSION}
    trace["required"] = ["version", *trace["required"]]
    return made


def render() -> str:
    """The JSON text of the schema."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
