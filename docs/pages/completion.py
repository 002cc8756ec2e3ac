"""The names that the shell completes: `python docs/pages/completion.py` writes `src/gpuyard/cli/completion/names.json`."""

from __future__ import annotations

import json
from typing import Any

from gpuyard.cli.completion.words import FILE
from gpuyard.cli.listing import KINDS, POLICIES
from gpuyard.metrics import AGGREGATIONS, GROUPINGS


def page() -> str:
    """Return the file: kind → name → what it is, and its parameters."""
    found: dict[str, dict[str, dict[str, Any]]] = {
        kind: {str(record["name"]): _entry(record) for record in records()} for kind, records in KINDS.items()
    }
    found["kinds"] = {kind: {"is": ""} for kind in (*KINDS, "policies")}
    found["aggregations"] = {name: {"is": ""} for name in AGGREGATIONS}
    found["groupings"] = {name: {"is": ""} for name in GROUPINGS}
    assert set(POLICIES) <= set(found)
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _entry(record: dict[str, Any]) -> dict[str, Any]:
    parameters = [each.partition("=")[0].strip() for each in str(record.get("parameters", "")).split(", ") if "=" in each]
    return {"is": str(record.get("is", ""))} | ({"parameters": parameters} if parameters else {})


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
