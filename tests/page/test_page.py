"""The status page in a real browser: what it shows, how soon, and what it does with the rest."""

from __future__ import annotations

import itertools
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from .conftest import PHONE, WIDE
from .scene import Api, Scene, provider

MISSPELT = (503, {"error": {"message": "The model `gpt-dmeo` does not exist", "code": "model_not_found"}})  # fmt: skip


def card(page: Page, key: str) -> Any:
    return page.locator(".card").filter(has=page.get_by_role("heading", name=key, exact=True))


def row(page: Page, label: str) -> Any:
    return page.locator(".breakers tr").filter(
        has=page.get_by_role("rowheader", name=label, exact=True)
    )


def live(page: Page) -> None:
    expect(page.locator("#link")).to_have_text("live")


def note_states(page: Page) -> None:
    """From here on the page remembers when a card showed a state first."""
    page.evaluate(
        """() => {
            window.seen = {};
            new MutationObserver(() => {
                const word = document.querySelector(".card .tag")?.textContent;
                if (word) window.seen[word] ??= Date.now();
            }).observe(document.getElementById("cards"), {childList: true, subtree: true, characterData: true});
        }"""
    )


def first_seen(page: Page, state: str) -> float:
    return page.evaluate("state => window.seen[state]", state) / 1000


def epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


# What a breaker does


def test_an_opening_is_shown_within_a_second(begin, look) -> None:
    scene = begin()
    page = look(scene)
    live(page)
    expect(page.locator("#calm")).to_be_visible()
    note_states(page)
    scene.trip("gpt-x")
    expect(card(page, "openai/gpt-x")).to_contain_text("5 failures in a row")
    entry = scene.status()["providers"]["openai"]["breakers"]["openai/gpt-x"]
    assert first_seen(page, "open") - epoch(entry["opened_at"]) < 1.0


def test_f163_it_counts_down_to_half_open_without_a_call_and_shows_the_recovery(
    begin, look, api: Api
) -> None:
    scene = begin()
    page = look(scene)
    live(page)
    note_states(page)
    scene.trip("gpt-x")
    shown = card(page, "openai/gpt-x")
    left = shown.locator(".left")
    expect(shown.locator(".tag")).to_have_text("open")
    expect(shown).to_contain_text("lets a probe through")
    expect(left).to_have_text(re.compile(r"in [23] s"))
    expect(left).to_have_text("in 1 s")
    # Nobody calls: time alone brings it about.
    expect(shown.locator(".tag")).to_have_text("half-open")
    expect(shown).to_contain_text("the next call is its probe")
    expect(page).to_have_title("breaker-sidecar")
    entry = scene.status()["providers"]["openai"]["breakers"]["openai/gpt-x"]
    assert first_seen(page, "half-open") - epoch(entry["half_open_at"]) < 1.0
    del api.answers["gpt-x"]
    assert [scene.call("gpt-x") for _ in range(2)] == [200, 200]
    expect(page.locator("#calm")).to_be_visible()
    expect(row(page, "gpt-x").locator(".tag")).to_have_text("closed")
    changes = page.locator("#changes li")
    expect(changes).to_have_count(3)
    expect(changes.first).to_contain_text("half-open → closed")


def test_a_run_says_what_comes_of_it(begin, look) -> None:
    scene = begin()
    scene.trip("gpt-x", times=3)
    page = look(scene)
    expect(row(page, "gpt-x")).to_contain_text("opens after 2 more failures in a row")
    expect(row(page, "gpt-x")).to_contain_text("3 failed")
    expect(row(page, "connections")).to_contain_text("3 good")


def test_what_only_observes_says_so(begin, look, api: Api) -> None:
    scene = begin({"providers": {"openai": provider(api.url, mode="observe")}})
    scene.trip("gpt-x")
    page = look(scene)
    expect(card(page, "openai/gpt-x")).to_contain_text("observes, refuses nothing")


# When the daemon is not there


def test_it_says_that_nobody_answers_and_survives_a_restart(begin, look) -> None:
    scene: Scene = begin()
    scene.trip("gpt-x", times=2)
    page = look(scene)
    live(page)
    expect(page.locator("#failures tbody tr")).to_have_count(2)
    scene.stop()
    notice = page.locator("#notices")
    expect(notice).to_contain_text("The daemon does not answer: the connection fails")
    expect(notice).to_contain_text("What stands below was known at")
    expect(page.locator("#link")).to_have_text("no answer")
    expect(row(page, "gpt-x").get_by_role("button").first).to_be_disabled()
    expect(page.locator("#spoken")).to_have_text("The daemon does not answer.")
    scene.start()
    live(page)
    expect(notice).not_to_contain_text("does not answer")
    expect(notice).to_contain_text("The daemon was started anew")
    # Figures, failures and events are those of the new one.
    expect(page.locator("#failures tbody tr")).to_have_count(0)
    scene.trip("gpt-y")
    expect(card(page, "openai/gpt-y").locator(".tag")).to_have_text("open")
    expect(page.locator("#failures tbody tr")).to_have_count(5)


def test_a_daemon_that_hangs_is_one_that_does_not_answer(begin, look) -> None:
    scene = begin()
    hold: list[Route] = []
    page = look(scene)
    live(page)
    page.context.route("**/status", lambda route: hold.append(route))
    expect(page.locator("#notices")).to_contain_text("no answer within 3 s")
    page.context.unroute("**/status")
    expect(page.locator("#notices")).to_be_empty()


# What else there is to see


def test_a_false_dress_is_told_with_a_sample(begin, look, api: Api) -> None:
    scene = begin()
    api.answers["gpt-dmeo"] = MISSPELT
    scene.call("gpt-dmeo", correlation_id="workflow-7")
    page = look(scene)
    told = page.locator("#reclassified")
    expect(told).to_contain_text("503 said model_not_found: a typo, not an outage")
    told.get_by_role("button", name="workflow-7").click()
    dialog = page.locator("#failure")
    expect(dialog).to_contain_text("The model `gpt-dmeo` does not exist")
    expect(dialog).to_contain_text("503, sent as 404")
    expect(dialog).to_contain_text("is of no use")
    expect(dialog.locator("pre")).to_contain_text('"status": 503')
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def test_failures_are_found(begin, look, api: Api) -> None:
    scene = begin()
    api.answers["gpt-dmeo"] = MISSPELT
    scene.trip("gpt-x")
    for number in range(3):
        scene.call("gpt-dmeo", correlation_id=f"workflow-{number}")
    scene.call("gpt-x", correlation_id="refused-1")
    page = look(scene)
    rows = page.locator("#failures tbody tr")
    expect(rows).to_have_count(8)
    page.get_by_label("Class").select_option("permanent")
    expect(rows).to_have_count(3)
    expect(page.locator("#found")).to_have_text("3 of 8 failures")
    page.get_by_label("Search").fill("WORKFLOW-1")
    expect(rows).to_have_count(1)
    page.get_by_label("Search").fill("")
    page.get_by_label("Class").select_option("")
    page.get_by_label("with what the daemon refused itself").check()
    expect(rows).to_have_count(9)
    expect(rows.first).to_contain_text("breaker_open")
    errors = page.locator("#errors tbody tr")
    expect(errors.filter(has_text="server_error")).to_contain_text("5")
    expect(errors.locator("svg rect")).not_to_have_count(0)


def test_the_configuration_and_its_errors(begin, look, api: Api) -> None:
    known = {"openai": provider(api.url)}
    scene = begin({"providers": {**known, "gone": {"upstream": "https://${NOT_SET}"}}})
    page = look(scene)
    expect(page.locator("#configuration")).to_contain_text("gone is disabled: NOT_SET is not set")
    scene.write({"providers": {"openai": {**provider(api.url), "bracker": {}}}})
    scene.reload()
    expect(page.locator("#notices")).to_contain_text("The last reload was refused")
    expect(page.locator("#notices")).to_contain_text("bracker")
    page.get_by_text("What is in force").click()
    expect(page.locator("#effective pre")).to_contain_text('"consecutive_failures": 5')
    scene.write({"providers": {**known, "second": provider(api.url)}})
    scene.reload()
    expect(page.locator("#notices")).to_be_empty()
    expect(page.locator("#providers details")).to_have_count(2)


def test_what_is_injected_is_told_from_what_happens(begin, look, api: Api) -> None:
    rules = [{"name": "<i>third</i> call", "class": "rate_limit", "nth": 1}]
    document = {"providers": {"openai": provider(api.url)}, "faults": {"rules": rules}}
    scene = begin(document)
    scene.call("gpt-x")
    api.answers["gpt-dmeo"] = MISSPELT
    scene.call("gpt-dmeo")
    page = look(scene)
    expect(page.locator("#notices")).to_contain_text(
        "injected into calls on purpose: <i>third</i> call (rate_limit), 1 time so far."
    )
    rows = page.locator("#failures tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.locator(".tag", has_text="injected")).to_have_count(1)
    page.get_by_label("Search").fill("injected")
    expect(rows).to_have_count(1)
    rows.first.get_by_role("button").click()
    expect(page.locator("#failure dl")).to_contain_text("<i>third</i> call")
    del document["faults"]
    page.get_by_role("button", name="Close").click()
    scene.write(document)
    scene.reload()
    expect(page.locator("#notices")).to_be_empty()


def test_the_smallest_screen_cuts_nothing(begin, look) -> None:
    page = look(begin(), size=(320, 640))
    live(page)
    wide = "[...document.querySelectorAll('#totals dt')].filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"
    assert page.evaluate(wide) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_dependencies_are_shown(begin, look, api: Api) -> None:
    dependencies = {"orders-db": {"source": "database", "vendor": "postgresql"}}
    scene = begin({"providers": {"openai": provider(api.url)}, "dependencies": dependencies})
    for _ in range(5):
        scene.report("orders-db", {"type": "psycopg.OperationalError", "sqlstate": "57P01"})
    page = look(scene)
    expect(row(page, "orders-db").locator(".tag")).to_have_text("open")
    expect(card(page, "orders-db")).to_contain_text("57P01")


def altered(change: Any) -> Any:
    """A route that passes the daemon's own document on with a change."""

    def route(route: Route) -> None:
        response = route.fetch()
        document = response.json()
        change(document)
        route.fulfill(response=response, body=json.dumps(document))

    return route


def test_shedding_quota_and_network(begin, look) -> None:
    def change(document: Any) -> None:
        document["network"] = "down"
        document["providers"]["openai"] |= {
            "shedding": [
                {"key": "openai/gpt-x", "state": "shedding", "not_before": None, "rate": 4.5, "queued": 3, "shed": 17, "hint": 90.0, "hint_source": "retry-after"},
                {"key": "openai/gpt-x", "state": "waiting", "not_before": "2999-01-01T00:00:00.000Z", "rate": None, "queued": 0, "shed": 0, "hint": None, "hint_source": None},
                {"key": "openai/gpt-y", "state": "idle", "not_before": None, "rate": None, "queued": 0, "shed": 0, "hint": None},
            ],
            "quota": [{"key": "openai/gpt-z", "until": None, "code": "credits_exhausted", "next_check": "2999-01-01T00:00:00.000Z"}],
        }  # fmt: skip

    page = look(begin(), route=altered(change))
    shedding, waiting = card(page, "openai/gpt-x").first, card(page, "openai/gpt-x").last
    expect(shedding.locator(".tag")).to_have_text("shedding")
    expect(shedding).to_contain_text("4.5 calls a second pass · 3 wait · 17 shed so far")
    expect(card(page, "openai/gpt-z")).to_contain_text("credits_exhausted; one call asks again in")
    expect(shedding).to_contain_text("the upstream asked for 90 s (retry-after)")
    expect(waiting).to_contain_text("its next call may go in")
    expect(page.locator(".card")).to_have_count(3)
    expect(page.locator("#notices")).to_contain_text("The network of this machine is down")


def test_the_daemons_clock_may_be_another(begin, look) -> None:
    """Read on another machine, a time of the daemon's is still so long ago as it is."""
    page = look(begin())
    live(page)
    late = """() => {
        const hour = 3600000, known = offset;
        setOffset(Date.now() + hour);
        const shown = time(new Date(Date.now() + hour).toISOString()) - Date.now();
        offset = known;
        return shown;
    }"""
    assert abs(page.evaluate(late)) < 2000
    assert page.evaluate("offset") == 0


# Steering


def test_a_breaker_is_steered_after_asking_once(begin, look) -> None:
    scene = begin()
    scene.call("gpt-x")
    page = look(scene)
    dialog = page.locator("#steer")

    def order(key: str, verb: str, **more: str) -> None:
        page.get_by_role("button", name=f"{verb} {key}", exact=True).first.click()
        expect(dialog).to_contain_text(f"{verb} {key}?")
        for label, text in more.items():
            dialog.get_by_label(label.replace("_", " ")).fill(text)
        dialog.get_by_role("button", name=verb, exact=True).click()
        expect(dialog).to_be_hidden()

    page.get_by_role("button", name="open openai/gpt-x", exact=True).click()
    dialog.get_by_role("button", name="Leave it").click()
    assert scene.status()["providers"]["openai"]["breakers"]["openai/gpt-x"]["state"] == "closed"
    order("openai/gpt-x", "open", Reason="they called us <b>", For_how_long="10m")
    shown = card(page, "openai/gpt-x")
    expect(shown).to_contain_text("they called us <b>")
    expect(shown.locator(".left")).to_have_text(re.compile(r"in (10|9) min"))
    order("openai/gpt-x", "observe")
    expect(shown).to_contain_text("observes, refuses nothing")
    order("openai/gpt-x", "enforce")
    order("openai/gpt-x", "reset")
    expect(page.locator("#calm")).to_be_visible()
    page.get_by_role("button", name="open openai", exact=True).click()
    dialog.get_by_label("For how long").fill("1000h")
    dialog.get_by_role("button", name="open", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("at most 720h")


def test_where_nothing_may_be_changed_there_is_no_button(begin, look, api: Api) -> None:
    scene = begin({"providers": {"openai": provider(api.url)}, "admin": {"mutations": False}})
    scene.call("gpt-x")
    page = look(scene)
    expect(row(page, "gpt-x")).to_be_visible()
    expect(page.locator("button[data-verb]")).to_have_count(0)
    expect(page.locator("#configuration")).to_contain_text("admin.mutations is false")


@pytest.fixture
def token(tmp_path: Path) -> str:
    (tmp_path / "token").write_text("s3cret")
    return str(tmp_path / "token")


def test_the_token_is_asked_for_where_there_is_one(begin, look, api: Api, token: str) -> None:
    scene = begin({"providers": {"openai": provider(api.url)}, "admin": {"token_file": token}})
    page = look(scene)
    page.get_by_role("button", name="open openai", exact=True).click()
    dialog = page.locator("#steer")
    sure = dialog.get_by_role("button", name="open", exact=True)
    sure.click()
    expect(dialog.get_by_role("alert")).to_contain_text("token")
    for given in ("wrong", "s3cret"):
        dialog.get_by_label("Token").fill(given)
        sure.click()
    expect(dialog).to_be_hidden()
    expect(card(page, "openai").locator(".tag")).to_have_text("open")


def test_on_another_address_nothing_is_shown_without_the_token(
    begin, look, api: Api, token: str
) -> None:
    document = {"providers": {"openai": provider(api.url)}, "admin": {"token_file": token}}
    scene = begin(document, host="0.0.0.0")
    page = look(scene)
    asked = page.locator("#token")
    expect(asked).to_be_visible()
    expect(page.locator("#providers details")).to_have_count(0)
    for given in ("wrong", "s3cret"):
        asked.get_by_label("Token").fill(given)
        asked.get_by_role("button").click()
    live(page)
    expect(page.locator("#providers details")).to_have_count(1)
    scene.trip("gpt-x")
    expect(card(page, "openai/gpt-x")).to_be_visible()


# Much of everything


def test_twenty_providers_and_five_hundred_models(begin, look, api: Api) -> None:
    names = [f"provider-{number}" for number in range(20)]
    scene = begin({"providers": {name: provider(api.url) for name in names}})
    for name in names:
        for number in range(25):
            scene.call(f"model-{number}", name)
    page = look(scene)
    live(page)
    expect(page.locator("#providers details")).to_have_count(20)
    # A drawing may come between a click and its event.
    page.evaluate(
        """() => {
            for (const details of document.querySelectorAll("#providers details")) details.open = true;
            drawNow();
        }"""
    )
    expect(page.locator(".breakers tbody tr")).to_have_count(520)
    # A reading that brings nothing new touches nothing.
    settle = "async () => { await refresh(); await new Promise(requestAnimationFrame); }"
    page.evaluate(settle)
    watch = """async () => {
        const touched = new Set();
        const note = (records) => records.forEach(({target}) => touched.add((target.closest ?? (() => null)).call(target, "tr") ?? target.parentElement?.closest("tr") ?? target));
        const observer = new MutationObserver(note);
        observer.observe(document.getElementById("providers"), {subtree: true, childList: true, attributes: true, characterData: true});
        while (asking) await new Promise((resolve) => setTimeout(resolve, 10));
        await refresh();
        await new Promise(requestAnimationFrame);
        note(observer.takeRecords());
        observer.disconnect();
        return [...touched].map((node) => node.innerText ?? node.textContent);
    }"""
    assert page.evaluate(watch) == []
    scene.call("model-7", "provider-3")
    touched = page.evaluate(watch)
    assert len(touched) == 2  # the model's row, and that of the provider's connections
    scene.trip("model-3", "provider-11")
    expect(card(page, "provider-11/model-3").locator(".tag")).to_have_text("open")
    page.get_by_label("Filter").fill("model-24")
    expect(page.locator(".breakers tbody tr:visible")).to_have_count(20)
    page.locator("#providers summary").nth(3).click()
    expect(page.locator(".breakers tbody tr:visible")).to_have_count(19)
    page.get_by_label("Filter").fill("provider-11")
    expect(page.locator("#providers details")).to_have_count(1)
    page.get_by_label("Filter").fill("")
    expect(page.locator(".breakers tbody tr")).to_have_count(520)
    page.locator("#providers summary").nth(3).click()
    expect(page.locator(".breakers tbody tr")).to_have_count(494)


HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "\"'><script>alert(2)</script>",
    "</script><svg onload=alert(3)>",
    "{{constructor.constructor('alert(4)')()}}",
    "../../../open?x=#y%2f",
    "__proto__",
    "\u202emoc.live\u2066 \x00\x1b[2J\n\t",
    "x" * 200,
]


def test_hostile_texts_are_texts(begin, look, api: Api) -> None:
    names = ["constructor", "hasownproperty", "0"]
    scene = begin({"providers": {name: provider(api.url) for name in names}})
    for number, text in enumerate(HOSTILE):
        status, message = (503, text) if number % 2 else (500, text)
        error = {"message": f"it says {message}", "code": text, "type": text}
        api.answers[text] = (status, {"error": error})
        for again in range(5):
            scene.call(text, "constructor", prompt=str(again))
    scene.call("m", "constructor", correlation_id="<b>id</b>")
    page = look(scene)
    live(page)
    expect(page.locator(".card")).to_have_count(len(HOSTILE))
    expect(page.locator("#failures tbody tr")).to_have_count(5 * len(HOSTILE))
    for text in HOSTILE[:6]:
        expect(card(page, f"constructor/{text}")).to_have_count(1)
        expect(page.locator(".message", has_text=f"it says {text}")).to_have_count(5)
    found = page.evaluate(
        "document.querySelectorAll('main img, main script, main b, main svg[onload]').length"
    )
    assert found == 0
    # What is steered is the one whose name stands there.
    name = f"close constructor/{HOSTILE[0]}"
    page.get_by_role("button", name=name, exact=True).first.click()
    page.locator("#steer").get_by_role("button", name="close", exact=True).click()
    expect(card(page, f"constructor/{HOSTILE[0]}")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# Who looks, and with what


def test_everybody_can_use_it(begin, look, api: Api, axe: str) -> None:
    dependencies = {"orders-db": {"source": "database", "vendor": "postgresql"}}
    scene = begin({"providers": {"openai": provider(api.url, breaker={"open_for": "60s"})}, "dependencies": dependencies})  # fmt: skip
    api.answers["gpt-dmeo"] = MISSPELT
    scene.call("gpt-dmeo")
    scene.trip("gpt-x")
    for size, scheme in itertools.product((WIDE, PHONE), ("light", "dark")):
        page = look(scene, size=size, scheme=scheme)
        expect(card(page, "openai/gpt-x")).to_be_visible()
        expect(page.locator("#failures tbody tr")).to_have_count(6)
        assert judged(page, axe) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.locator(".card button").first.click()
        expect(page.locator("#steer")).to_be_visible()
        assert judged(page, axe) == []


def judged(page: Page, axe: str) -> list[str]:
    """What axe finds, each with where."""
    page.evaluate(axe)
    run = "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
    found = page.evaluate(run)
    return [f"{one['id']}: {node['html']}" for one in found for node in one["nodes"]]
