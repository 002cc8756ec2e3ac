"""What comes from others is what they published, unchanged, with its licence."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

from gpuyard.web import __file__ as web

VENDOR = Path(web).parent / "static" / "vendor"
AXE = Path(__file__).parent / "vendor"
AXE_SHA256 = "880970c081707360e64f34cea25ff91892f5bc95675b0776925b9709dd8a68bb"  # axe.min.js of axe-core 4.10.3 in the npm registry


def test_uplot_is_what_its_note_says():
    note = (VENDOR / "README.txt").read_text()
    for name in ("uPlot.js", "uPlot.css"):
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() in note
    assert "1.6.32" in note and "MIT" in (VENDOR / "uPlot.LICENSE.txt").read_text()


def test_axe_is_what_was_published():
    assert hashlib.sha256(gzip.decompress((AXE / "axe.min.js.gz").read_bytes())).hexdigest() == AXE_SHA256
    assert "Mozilla Public License" in (AXE / "axe-core.LICENSE.txt").read_text()
