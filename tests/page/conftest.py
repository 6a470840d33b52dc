"""A real Chromium, and pages in it that may go nowhere but to their daemon."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)

from tests.conftest import need

from .scene import Api, Scene, provider

HERE = Path(__file__).parent / "node"
INSTALL_SECONDS = 180
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
expect.set_options(timeout=15_000)  # only a hang takes so long, on a busy machine too
WIDE, PHONE = (1280, 900), (390, 844)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests here; it is gone before tests with a loop of their own run."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        need("Chromium is not installed: the status page cannot be looked at")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=SWITCHES)
        yield browser
        browser.close()


class Window:
    """A browser's window with one page, and everything that the page did."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.page: Page = context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))
        self.page.on("console", self._console)

    def _console(self, message: ConsoleMessage) -> None:
        # A call that is refused or that nobody answers is logged by the browser itself.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.errors.append(message.text)

    def open(self, scene: Scene) -> Page:
        self.page.goto(scene.page)
        return self.page

    def check(self, scene: Scene) -> None:
        """It stayed at home and nothing went wrong."""
        home = urlsplit(scene.page).netloc
        urls = map(urlsplit, self.requests)
        assert {url.netloc for url in urls if url.scheme != "data"} <= {home}
        assert self.errors == []


Opened = Callable[..., Page]


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    yield api
    api.stop()


@pytest.fixture
def begin(tmp_path: Path, api: Api) -> Iterator[Callable[..., Scene]]:
    """Starts the daemon of the test."""
    scenes: list[Scene] = []

    def start(document: dict[str, Any] | None = None, **more: Any) -> Scene:
        plain = {"providers": {"openai": provider(api.url)}}
        scene = Scene(tmp_path, api, document or plain, **more)
        scenes.append(scene)
        scene.start()
        return scene

    yield start
    for scene in scenes:
        scene.stop()


@pytest.fixture
def look(browser: Browser) -> Iterator[Opened]:
    """Opens a daemon's page; after the test it is asked what it did."""
    windows: list[tuple[Window, Scene]] = []

    def opened(
        scene: Scene, *, size: tuple[int, int] = WIDE, scheme: Any = "light", route: Any = None
    ) -> Page:
        width, height = size
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        context.set_default_timeout(15_000)
        window = Window(context)
        if route is not None:
            context.route("**/status", route)
        windows.append((window, scene))
        return window.open(scene)

    yield opened
    for window, _ in windows:
        window.context.close()
    for window, scene in windows:
        window.check(scene)


@pytest.fixture(scope="package")
def axe() -> str:
    """The script that judges accessibility, as package-lock.json names it."""
    npm = shutil.which("npm")
    if npm is None:
        need("npm is not installed: axe cannot be fetched")
    lock, mark = HERE / "package-lock.json", HERE / "node_modules" / ".installed"
    if not mark.exists() or mark.read_text() != lock.read_text():
        command = [npm, "ci", "--prefer-offline"]
        try:
            subprocess.run(
                command, cwd=HERE, check=True, capture_output=True, timeout=INSTALL_SECONDS
            )
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
            need(f"npm could not fetch axe: {error}")
        mark.write_text(lock.read_text())
    return (HERE / "node_modules" / "axe-core" / "axe.min.js").read_text()
