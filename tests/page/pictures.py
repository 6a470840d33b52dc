"""Takes the pictures of docs/images: `python -m tests.page.pictures`, with Pillow beside the tests.

A real daemon in a bad quarter of a minute, wide and on a phone, in the light and in the dark. What
they show is looked at by whoever takes them.
"""

from __future__ import annotations

import io
import itertools
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect, sync_playwright

from .conftest import PHONE, SWITCHES, WIDE
from .scene import ROOT, Api, Scene, provider

IMAGES = ROOT / "docs" / "images"
COLOURS = 96
SPENT = {"message": "You exceeded your current quota, please check your plan.", "code": "insufficient_quota"}  # fmt: skip
MISSPELT = {"message": "The model `gpt-5-mimi` does not exist", "code": "model_not_found"}
DEADLOCK = {"type": "psycopg.errors.DeadlockDetected", "sqlstate": "40P01", "message": "deadlock detected"}  # fmt: skip


def document(url: str) -> dict[str, object]:
    return {
        "providers": {
            "anthropic": provider(url),
            "groq": provider(url),
            "openai": provider(url, breaker={"open_for": "45s"}),
            "private": provider(url, mode="observe", breaker={"open_for": "90s"}),
            "bedrock": {"upstream": "https://${AWS_HOST}"},
        },
        "dependencies": {"orders-db": {"source": "database", "vendor": "postgresql"}},
    }


def play(scene: Scene) -> None:
    """What happened."""
    api = scene.api
    api.answers["gpt-5-mimi"] = (503, {"error": MISSPELT})
    api.answers["claude-sonnet"] = (429, {"error": SPENT})
    for number in range(40):
        scene.call("gpt-5", prompt=str(number))
        scene.call("llama-70b", "groq", prompt=str(number))
    for number in range(4):
        scene.call("gpt-5-mimi", correlation_id=f"nightly-report-{number}")
    scene.call("claude-sonnet", "anthropic", "invoice-1138")
    scene.trip("mixtral", "groq", 3)
    scene.trip("llama-local", "private")
    for _ in range(2):
        scene.report("orders-db", DEADLOCK)
    for number in range(7):
        scene.call("gpt-5-mini", prompt=str(number))
    scene.trip("gpt-5-mini")
    for number in range(6):
        scene.call("gpt-5-mini", correlation_id=f"refused-{number}")


def main() -> None:
    api = Api()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        scene = Scene(Path(folder), api, document(api.url))
        scene.start()
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=SWITCHES)
        try:
            play(scene)
            for (name, size), scheme in itertools.product(
                (("wide", WIDE), ("phone", PHONE)), ("light", "dark")
            ):
                page = browser.new_page(
                    viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
                )
                page.goto(scene.page)
                expect(page.locator(".card")).to_have_count(2)
                expect(page.locator("#link")).to_have_text("live")
                if name == "wide":
                    page.locator("summary").nth(2).click()
                page.mouse.move(0, 0)
                picture = Image.open(io.BytesIO(page.screenshot(full_page=False)))
                small = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
                small.save(IMAGES / f"page-{name}-{scheme}.png", optimize=True)
                page.close()
        finally:
            browser.close()
            scene.stop()
            api.stop()


if __name__ == "__main__":
    main()
