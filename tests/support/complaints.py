"""What the command line complained about, read from stderr."""

from __future__ import annotations

ERROR, HINT = "gpuyard: error: ", "gpuyard: hint: "


def complaints(err: str) -> list[str]:
    """Return each error with its hint, as the exception says it: `message; hint: what to do`. There may be nothing else but errors."""
    found: list[str] = []
    for line in err.splitlines():
        if line.startswith(HINT):
            assert found, f"a hint without an error: {line}"
            assert "; hint: " not in found[-1], f"two hints: {line}"
            found[-1] += f"; hint: {line.removeprefix(HINT)}"
        else:
            assert line.startswith(ERROR), line
            found.append(line.removeprefix(ERROR))
    return found
