"""`audit`: sends an upstream what cannot succeed, and says whether its answers tell the truth.

For whoever puts a gateway in front of a model, chooses one, or upgrades one: an upstream that calls
a typo an outage costs its callers retries and their breakers' trust, and nobody notices until then.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from sidecar.audit import baseline
from sidecar.audit.audit import Audit, Report
from sidecar.audit.baseline import Baseline, Change
from sidecar.audit.plans import Plan
from sidecar.audit.providers import plan_of
from sidecar.audit.questions import Allowance
from sidecar.cli import arguments as shared
from sidecar.cli.audit_report import draw, encoded, plain
from sidecar.cli.errors import CommandError, Exit, printable, say
from sidecar.cli.settings import load
from sidecar.config import files
from sidecar.config.addresses import AddressError
from sidecar.config.resolved import Config, Provider
from sidecar.envelope import dialects
from sidecar.proxy.failures import Refused
from sidecar.proxy.runtime import dialect_of

_CONTEXT = 1_000_000
_PATH = re.compile(r"/[!-\"$-~]*")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("provider", metavar="PROVIDER", help="a provider of the configuration")
    shared.add_config(parser)
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="compare with the classes of an earlier audit; a file that does not exist is written",
    )
    parser.add_argument(
        "--update-baseline",
        action="store_true",
        help="write what was found to the baseline, whatever it held",
    )
    key = parser.add_mutually_exclusive_group()
    key.add_argument(
        "--key-env", metavar="NAME", help="environment variable with the key that is sent"
    )
    key.add_argument("--key-file", type=Path, metavar="FILE", help="file with the key that is sent")
    parser.add_argument(
        "--base", metavar="PATH", help="path that the dialect's routes stand behind, such as /v1"
    )
    parser.add_argument(
        "--path", metavar="PATH", help="a path that needs a key; where the dialect knows of none"
    )
    parser.add_argument(
        "--timeout",
        type=shared.positive_seconds,
        default=30.0,
        metavar="SECONDS",
        help="longest wait for each answer (default: 30)",
    )
    parser.add_argument(
        "--allow-billable",
        action="store_true",
        help="also send a prompt beyond the context of --model, which may cost money",
    )
    parser.add_argument(
        "--model", metavar="NAME", help="a model that exists; --allow-billable only"
    )
    parser.add_argument(
        "--context",
        type=_tokens,
        default=_CONTEXT,
        metavar="TOKENS",
        help=f"how many tokens that model takes (default: {_CONTEXT})",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Asks, prints, compares; 4 if the upstream misleads or a class is not what it was."""
    allowed = _allowed(arguments)
    if arguments.update_baseline and arguments.baseline is None:
        raise CommandError("--update-baseline needs --baseline FILE", Exit.USAGE)
    before = None if arguments.baseline is None else baseline.read(arguments.baseline)
    provider = _provider(load(arguments, os.environ).config, arguments.provider)
    for path in (arguments.base, arguments.path):
        if path and _PATH.fullmatch(path) is None:
            raise CommandError(f"{printable(path)} is no path: it begins with /", Exit.USAGE)
    plan = plan_of(dialect_of(provider).name, path=arguments.path)
    own, key = _key(arguments, provider, plan, os.environ)
    audit = Audit(
        provider,
        plan,
        base=_base(arguments.base, provider, plan),
        own=own,
        key=key,
        timeout=arguments.timeout,
        allowed=allowed,
    )
    try:
        report = asyncio.run(audit.run())
    except Refused as refusal:
        raise CommandError(refusal.detail) from None
    changes = _compared(arguments, before, report)
    if arguments.json:
        print(encoded(report, changes))
    elif not draw(report, changes):
        for line in plain(report, changes):
            print(line)
    return _exit(report, changes, updated=arguments.update_baseline)


def _exit(report: Report, changes: tuple[Change, ...], *, updated: bool) -> int:
    breaking = any(change.breaking for change in changes) and not updated
    return Exit.MISLEADS if report.misleads or breaking else Exit.FINE


def _compared(
    arguments: argparse.Namespace, before: Baseline | None, report: Report
) -> tuple[Change, ...]:
    file = arguments.baseline
    if file is None:
        return ()
    changes = () if before is None else baseline.compare(before, report)
    if before is None or arguments.update_baseline:
        baseline.write(file, baseline.of_report(report))
        say(f"{file}: written")
    return changes


def _allowed(arguments: argparse.Namespace) -> Allowance | None:
    if arguments.allow_billable:
        if arguments.model is None:
            raise CommandError("--allow-billable needs --model NAME, one that exists", Exit.USAGE)
        return Allowance(model=arguments.model, context=arguments.context)
    if arguments.model is not None:
        message = "--model is asked only with --allow-billable: the call may cost money"
        raise CommandError(message, Exit.USAGE)
    return None


def _provider(config: Config, name: str) -> Provider:
    if name in config.providers:
        return config.providers[name]
    if name in config.disabled:
        raise CommandError(f"{name} is disabled: {config.disabled[name]}", Exit.USAGE)
    known = ", ".join(sorted(config.providers))
    raise CommandError(f"no provider is called {printable(name)}; there are: {known}", Exit.USAGE)


def _base(given: str | None, provider: Provider, plan: Plan) -> str | None:
    """The base path: as given, else the plan's, unless the upstream ends with it already."""
    if given is not None:
        return given
    if provider.upstream.startswith("unix:") or not plan.base:
        return None
    path = urlsplit(provider.upstream).path.rstrip("/")
    return "" if path.endswith(plan.base) else None


def _key(
    arguments: argparse.Namespace, provider: Provider, plan: Plan, environ: Mapping[str, str]
) -> tuple[str | None, str]:
    """The key that is sent, and where it came from; None where the configuration sends its own."""
    given = arguments.key_env or arguments.key_file
    if provider.sign.aws is not None or plan.key.header in provider.header_values:
        how = "sign.aws" if provider.sign.aws is not None else f"set_headers.{plan.key.header}"
        if given:
            raise CommandError(f"{provider.name} has its key from {how}", Exit.USAGE)
        return None, how
    if arguments.key_file is not None:
        try:
            return files.read_token(str(arguments.key_file)), str(arguments.key_file)
        except AddressError as error:
            raise CommandError(f"{arguments.key_file}: {error}", Exit.USAGE) from None
    if arguments.key_env is not None:
        return _from(environ, arguments.key_env), arguments.key_env
    if _is_own_host(provider):
        for name in plan.key.variables:
            if environ.get(name, "").strip():
                return _from(environ, name), name
    return None, "none"


def _from(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "").strip()
    if not value:
        raise CommandError(f"{printable(name)} is not set", Exit.USAGE)
    if not (value.isascii() and value.isprintable()):
        raise CommandError(f"{printable(name)} is no key: it has odd characters", Exit.USAGE)
    return value


def _is_own_host(provider: Provider) -> bool:
    """Whether the upstream is the provider's own, so that its clients' key is meant for it.

    A gateway at another address must not be sent a key that happens to be in the environment.
    """
    if not provider.upstream.startswith("https:"):
        return False
    guessed = dialects.guess(urlsplit(provider.upstream).hostname or "").name
    return guessed not in ("auto", "generic") and guessed == dialect_of(provider).name


def _tokens(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text[:9]) <= 10_000_000 or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens")
    return int(text)
