"""Pictures for the documentation: pages opened in Chromium, and PNG files made small."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Page

COLOURS = 64  # enough for charts and text; a third of the bytes


def shrink(path: Path, colours: int = COLOURS) -> None:
    """Rewrite a PNG file with a palette, without dithering."""
    with Image.open(path) as opened:
        small = opened.convert("RGB").quantize(colours, method=Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


@contextmanager
def opened(
    address: str, width: int, height: int, scheme: Literal["light", "dark"] = "light", sharpness: float = 1.0
) -> Iterator[tuple[Page, list[str]]]:
    """Open a page in Chromium; the list beside it grows by every address that was asked for outside the page's own origin."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=sharpness)
        page = context.new_page()
        outside: list[str] = []
        own = address.partition("//")[0] if address.startswith("file:") else "/".join(address.split("/")[:3])
        page.on(
            "request", lambda request: None if request.url.startswith((own, "data:", "blob:", "about:")) else outside.append(request.url)
        )
        page.goto(address)
        page.wait_for_load_state("networkidle")
        yield page, outside
        browser.close()
