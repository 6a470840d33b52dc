"""The status page: a table a provider, one for dependencies, readable without scripts and colour.

It is drawn on the server. It shows what /status says and nothing more, so it takes that document;
everything in it that came from outside is escaped.
"""

from __future__ import annotations

from html import escape
from typing import Any

REFRESH_SECONDS = 5

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .3rem; }
p { margin: .2rem 0; opacity: .85; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #8886; padding: .25rem .7rem .25rem 0; text-align: left;
  vertical-align: top; overflow-wrap: anywhere; }
th { font-weight: 600; } td.n { font-variant-numeric: tabular-nums; }
b { border: 1px solid; border-radius: .3rem; padding: 0 .35rem; font-weight: 600; }
"""

_COLUMNS = (
    "breaker",
    "state",
    "mode",
    "reason",
    "since (UTC)",
    "again in",
    "good / bad in window",
    "run",
    "opens",
    "last error",
)


def render(document: dict[str, Any]) -> str:
    """The page as HTML, from the document of `GET /status`."""
    totals, config = document["totals"], document["config"]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>breaker-sidecar</title><style>{_STYLE}</style></head><body>",
        f"<h1>breaker-sidecar {_text(document['version'])}</h1>",
        f"<p>since {_text(document['started_at'])} · network {_text(document['network'])}</p>",
        f"<p>calls: {_counts(totals)}</p>",
        f"<p>configuration {config['generation']} ({_text(config['hash'])})</p>",
    ]
    if config["error"]:
        parts.append(f"<p><b>the last reload was refused</b> {_text(config['error'])}</p>")
    parts += [
        f"<p>{_text(name)} is disabled: {_text(reason)}</p>"
        for name, reason in config["disabled"].items()
    ]
    parts += [_provider(name, entry) for name, entry in document["providers"].items()]
    if document["dependencies"]:
        parts.append(_dependencies(document["dependencies"]))
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _counts(totals: dict[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in totals.items())


def _provider(name: str, entry: dict[str, Any]) -> str:
    reclassified = entry["reclassified"]["total"]
    return (
        f"<h2>{_text(name)} <b>{_text(entry['verdict'])}</b></h2>\n"
        f"<p>{_text(entry['upstream'])} · {_text(entry['dialect'])} · {_text(entry['mode'])} · "
        f"{entry['in_flight']} in flight · errors: {_errors(entry)} · "
        f"reclassified: {reclassified}</p>\n{_table(entry['breakers'])}"
    )


def _dependencies(entries: dict[str, Any]) -> str:
    told = "".join(
        f"<p>{_text(name)} · {_text(entry['system'] or entry['source'])} · "
        f"{entry['in_flight']} in flight · errors: {_errors(entry)}</p>\n"
        for name, entry in entries.items()
    )
    return f"<h2>dependencies</h2>\n{told}{_table(entries)}"


def _errors(entry: dict[str, Any]) -> str:
    counts = entry["errors"]["by_class"].items()
    return _text(", ".join(f"{class_} {n}" for class_, n in counts if n) or "none")


def _table(breakers: dict[str, Any]) -> str:
    head = "".join(f'<th scope="col">{column}</th>' for column in _COLUMNS)
    rows = "\n".join(_row(key, breaker) for key, breaker in breakers.items())
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"


def _row(key: str, breaker: dict[str, Any]) -> str:
    window, wait = breaker["window"], breaker["retry_after"]
    state = breaker["state"].replace("_", "-")
    cells = (
        _text(key),
        f"<b>{state}</b>" if state != "closed" else state,
        _text(breaker["mode"]),
        _text(breaker["reason"]),
        _text(breaker["since"]),
        "" if wait is None else f"{wait:.0f} s",
        f"{window['success']} / {window['failure']}",
        str(breaker["consecutive_failures"]),
        str(breaker["opens"]),
        _last_error(breaker["last_error"]),
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _last_error(error: dict[str, Any] | None) -> str:
    if error is None:
        return ""
    words = [error["code"] or error["kind"]]
    if error["status"] is not None:
        words.append(f"({error['status']})")
    return _text(" ".join([*words, error["at"]]))


def _text(value: Any) -> str:
    return "" if value is None else escape(str(value))
