"""The status page as it is sent; what it shows is looked at in a browser, in `tests/page`."""

import re
from pathlib import Path

import pytest

from sidecar.admin.page import page
from sidecar.admin.server import AdminPlane
from sidecar.admin.words import in_words
from sidecar.config.addresses import Listen

from .daemon import PROVIDERS, Daemon
from .raw import call

HTML = "Accept: text/html,application/xhtml+xml"


async def test_it_is_one_document_that_loads_nothing(address: str) -> None:
    answer = await call(address, "/")
    text = answer.body.decode()
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert not re.search(r"""\ssrc=|@import|url\(|\bimport\s*\(|https?://(?!www\.w3\.org/)""", text)
    assert re.findall(r'href="([^:]*):', text) == ["data"]
    assert not re.search(r"/\*(style|script|words)\*/", text)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy


async def test_every_text_is_set_as_text() -> None:
    text = page().body.decode()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(", text
    )


async def test_the_daemon_holds_nothing_back_from_it(daemon: Daemon, address: str) -> None:
    daemon.fail("<script>alert(1)</script>")
    assert (await call(address, "/")).body == page().body


class TestExposed:
    """On an address that others reach, only the page itself is shown without the token."""

    @pytest.fixture
    async def exposed(self, tmp_path: Path):
        (tmp_path / "token").write_text("s3cret")
        text = PROVIDERS + f'admin: {{token_file: "{tmp_path / "token"}"}}\n'
        daemon = Daemon(tmp_path, text)
        plane = AdminPlane(daemon)
        (address,) = await plane.start([Listen(host="0.0.0.0", port=0)])
        yield address.replace("0.0.0.0", "127.0.0.1")
        await plane.stop()

    async def test_a_browser_is_asked_for_the_token(self, exposed: str) -> None:
        answer = await call(exposed, "/", "GET", HTML)
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.headers["content-security-policy"] == page().policy
        assert answer.body == page().body

    @pytest.mark.parametrize(
        ("target", "headers"), [("/", ()), ("/status", (HTML,)), ("/config", (HTML,))]
    )
    async def test_everything_else_is_refused(
        self, exposed: str, target: str, headers: tuple[str, ...]
    ) -> None:
        answer = await call(exposed, target, "GET", *headers)
        assert (answer.status, answer.code) == (401, "token_required")

    async def test_with_the_token_it_is_answered(self, exposed: str) -> None:
        answer = await call(exposed, "/", "GET", HTML, "Authorization: Bearer s3cret")
        assert answer.status == 200


@pytest.mark.parametrize(
    ("status", "class_", "code", "words"),
    [
        (503, "permanent", "model_not_found", "503 said model_not_found: a typo, not an outage"),
        (429, "permanent", "credits_exhausted", "429 said credits_exhausted: a spent budget, not a burst"),
        (200, "rate_limit", "burst", "200 said burst: a rate limit, not a success"),
        (599, "authentication", "odd", "599 said odd: a bad key, not an outage"),
        (402, "permanent", "quota_exhausted", "402 said quota_exhausted: a spent budget"),
        (999, "unheard-of", "x", "999 said x: unheard-of, not what it looked like"),
    ],
)  # fmt: skip
def test_a_false_dress_in_words(status: int, class_: str, code: str, words: str) -> None:
    assert in_words(status, class_, code) == words
