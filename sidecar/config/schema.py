"""The one definition of `breakers.yaml`: every key, its type, bounds, default and description.

Reading, error texts, the reference page and the JSON Schema all come from these structs. Their
fields hold what the program works with (seconds, bytes, addresses); a `kind` says that a value is
written differently in the file (`30s`, `256KiB`) and is read by the function of that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sidecar.config.addresses import Listen
from sidecar.envelope.rules import OperatorRule

_YEAR = 365 * 86400.0
_DAY = 86400.0


def _kind(name: str) -> Meta:
    return Meta(extra={"kind": name}, extra_json_schema={"x-kind": name})


def _about(text: str) -> Meta:
    return Meta(description=text)


Duration = Annotated[float, Meta(ge=0.001, le=_DAY), _kind("duration")]
LongDuration = Annotated[float, Meta(ge=0.001, le=_YEAR), _kind("duration")]
OptionalWait = Annotated[float, Meta(ge=0, le=_DAY), _kind("duration")]
Size = Annotated[int, Meta(ge=1, le=1024**4), _kind("size")]
BufferSize = Annotated[int, Meta(ge=1024, le=64 * 1024**2), _kind("size")]
Listeners = Annotated[tuple[Listen, ...], _kind("listen")]
File = Annotated[str, _kind("file")]
Secret = Annotated[str, _kind("secret")]
SigningName = Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,64}$")]

Mode = Literal["enforce", "observe", "off"]
Scope = Literal["model", "provider"]
DependencySource = Literal["database", "sdk"]
OnReclassified = Literal["correct", "annotate"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "text", "json"]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the file whose keys are all known."""


class AdminSection(Section, frozen=True, kw_only=True):
    """The admin plane."""

    listen: Annotated[
        Listeners,
        _about("Where the admin plane listens. Another address than loopback needs `token_file`."),
    ] = (Listen(host="localhost", port=7601),)
    token_file: Annotated[
        File | None,
        _about(
            "A file with the token. If set, calls that change something, and `raw`, need "
            "`Authorization: Bearer …`; on another address than loopback every call does, but for "
            "`/healthz` and `/readyz`."
        ),
    ] = None
    mutations: Annotated[
        bool,
        _about(
            "Whether anybody may steer breakers and reload through the admin plane; permits and "
            "reports of dependencies are the agent's own work and go on without."
        ),
    ] = True


class ProbeSection(Section, frozen=True, kw_only=True):
    """The probe listener."""

    listen: Annotated[
        Listeners | None,
        _about(
            "A third, read-only listener for `/healthz`, `/readyz` and `/metrics`, without a guard "
            "on Host; `null` for none."
        ),
    ] = None


class Log(Section, frozen=True, kw_only=True):
    """The log."""

    level: Annotated[LogLevel, _about("What is logged at least.")] = "info"
    format: Annotated[
        LogFormat, _about("`auto` is text on a terminal and JSON lines elsewhere.")
    ] = "auto"


class Drain(Section, frozen=True, kw_only=True):
    """Stopping."""

    delay: Annotated[
        OptionalWait,
        _about("How long the daemon still accepts calls after SIGTERM; 0 = not at all."),
    ] = 0.0
    timeout: Annotated[
        OptionalWait,
        _about("How long running calls may still take after that; 0 = they are cut at once."),
    ] = 20.0


class Timeouts(Section, frozen=True, kw_only=True):
    """The clocks of one call."""

    connect: Annotated[Duration, _about("For DNS, the connection and TLS together.")] = 5.0
    first_byte: Annotated[Duration, _about("From the request's end to the head of the answer.")] = (
        590.0
    )
    first_content: Annotated[
        Duration,
        _about(
            "From the request's end to the first meaningful event of a stream; pings do not count."
        ),
    ] = 590.0
    idle: Annotated[Duration, _about("Silence between two bytes of an answer.")] = 300.0
    total: Annotated[
        LongDuration | None,
        _about("For the whole call; `null` = no such limit, since streams may last for hours."),
    ] = None
    abandoned: Annotated[
        Duration,
        _about(
            "A caller that leaves after this much silence, while no other call of that key got a "
            "byte, has left a hanging upstream: that counts as a failure."
        ),
    ] = 60.0
    hold: Annotated[
        Duration,
        _about("How long an answer is held so that an error in it can still become a real status."),
    ] = 1.0
    keep_alive: Annotated[
        Duration, _about("How long an idle connection to the upstream is kept for the next call.")
    ] = 4.0
    client: Annotated[
        Duration,
        _about(
            "A caller that neither reads nor sends for this long is cut; that counts for nothing."
        ),
    ] = 300.0


class BreakerRules(Section, frozen=True, kw_only=True):
    """When a breaker opens, and how it closes again, whatever it guards."""

    consecutive_failures: Annotated[
        int,
        Meta(ge=0, le=1_000_000),
        _about("Opens after so many failures in a row; 0 = rule off."),
    ] = 5
    window: Annotated[Duration, _about("The time over which `failure_ratio` is taken.")] = 60.0
    minimum_calls: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        _about("Decided calls (success and failure) in the window before the ratio counts."),
    ] = 10
    failure_ratio: Annotated[
        float,
        Meta(ge=0, le=1),
        _about("Opens at this share of failures among the decided calls; 0 = rule off."),
    ] = 0.5
    open_for: Annotated[
        Duration,
        _about("How long the breaker stays open at first; doubles with each failed probe."),
    ] = 30.0
    open_max: Annotated[
        Duration,
        _about(
            "Up to which it doubles. A `Retry-After` of the upstream is a floor, capped at "
            "`shedding.retry_after_max`."
        ),
    ] = 300.0
    jitter: Annotated[
        float,
        Meta(ge=0, le=1),
        _about("The share by which the open time is drawn longer; 0 = always exact."),
    ] = 0.2
    probes: Annotated[
        int, Meta(ge=1, le=1000), _about("Calls let through at a time while half-open.")
    ] = 1
    successes: Annotated[
        int,
        Meta(ge=1, le=1000),
        _about(
            "Good probes that close it; one suffices if connection failures or timeouts opened it."
        ),
    ] = 2


class BreakerConfig(BreakerRules, frozen=True, kw_only=True):
    """The breaker of an upstream that is called through the daemon."""

    repeat_window: Annotated[
        OptionalWait,
        _about(
            "The same request answered 5xx again within this time counts once for the run; 0 = off."
        ),
    ] = 30.0
    fail_fast: Annotated[
        bool, _about("Tell SDKs not to retry a refusal: `x-should-retry: false` on `breaker_open`.")
    ] = True


class Sustained(Section, frozen=True, kw_only=True):
    """When single throttles have become a limit that calls are paced under."""

    count: Annotated[
        int, Meta(ge=1, le=1_000_000), _about("Throttles within `window` that it takes.")
    ] = 5
    window: Annotated[Duration, _about("The time over which they are counted.")] = 30.0
    ratio: Annotated[
        float,
        Meta(ge=0, le=1),
        _about(
            "The share of the calls that must have been throttled, or shed in its place; "
            "0 = the count alone decides."
        ),
    ] = 0.5


class Quota(Section, frozen=True, kw_only=True):
    """What a spent budget does to further calls."""

    mode: Annotated[
        Literal["gate", "observe", "off"],
        _about(
            "`gate`: further calls of that key are answered here; `observe`: it is only shown; "
            "`off`: not even that."
        ),
    ] = "gate"
    recheck: Annotated[
        Duration,
        _about("One call asks again each time, whatever the reset says: a top-up tells nobody."),
    ] = 60.0


class Shedding(Section, frozen=True, kw_only=True):
    """What a rate limit does to further calls, how long a wait may be, and who sits it out."""

    sustained: Annotated[Sustained, _about("When throttled calls begin to be paced.")] = Sustained()
    max_wait: Annotated[
        OptionalWait,
        _about(
            "A call is held at most this long in all (for its slot, its place at the provider and "
            "between attempts), else shed; 0 = nothing is held."
        ),
    ] = 2.0
    max_queue: Annotated[
        int, Meta(ge=0, le=1_000_000), _about("Calls of one key that are held at a time; 0 = none.")
    ] = 16
    min_rate: Annotated[
        float, Meta(ge=0.001, le=1_000_000), _about("Calls a second that pacing never goes below.")
    ] = 1.0
    preempt: Annotated[
        bool,
        _about(
            "Wait for the reset when an answer said that nothing remains, instead of spending a "
            "refusal. Such headers lie at times."
        ),
    ] = False
    quota: Annotated[Quota, _about("What a spent budget does.")] = Quota()
    open_after: Annotated[
        OptionalWait,
        _about(
            "At `min_rate`, without one success and without a hint for this long, a throttle "
            "counts as a failure; 0 = never."
        ),
    ] = 600.0
    retry_after_max: Annotated[
        LongDuration,
        _about("A longer hint of the upstream gates this long and is shown as it was given."),
    ] = 3600.0
    sdk_wait_max: Annotated[
        LongDuration,
        _about("A longer wait is not left to the sleep of an SDK: `x-should-retry: false`."),
    ] = 60.0


class Limits(Section, frozen=True, kw_only=True):
    """How much is accepted, and how much of it is looked at."""

    in_flight: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        _about(
            "Calls of one provider under way at a time. Further ones wait for a place, at most "
            "`shedding.max_queue` of them and at most `shedding.max_wait` long; else `bulkhead`."
        ),
    ] = 1024
    request_body: Annotated[
        Size | None, _about("The largest request body that is forwarded; `null` = no limit.")
    ] = None
    classify_body: Annotated[
        BufferSize, _about("How much of an answer is held and inflated to classify it.")
    ] = 256 * 1024
    model_scan: Annotated[
        BufferSize, _about("How much of a request is searched for the model's name.")
    ] = 1024 * 1024


class Retry(Section, frozen=True, kw_only=True):
    """Calls that the daemon repeats itself. Off, unless `attempts` is set."""

    attempts: Annotated[
        int,
        Meta(ge=0, le=10),
        _about(
            "How often a call is repeated that failed as `transient` before its first byte; "
            "0 = never. Clients that retry too multiply it."
        ),
    ] = 0
    budget: Annotated[
        float,
        Meta(ge=0, le=1),
        _about(
            "Repetitions as a share of the provider's calls of the last minute; a lone call may "
            "use all its `attempts`. 0 = none."
        ),
    ] = 0.1
    methods: Annotated[
        tuple[str, ...],
        _kind("methods"),
        _about("Methods that may be repeated as they are."),
    ] = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")
    require_idempotency_key: Annotated[
        bool,
        _about(
            "Other methods are repeated only with an `Idempotency-Key` of the caller's own; "
            "`false` repeats them without, for an upstream where that does no harm."
        ),
    ] = True


class ClientTls(Section, frozen=True, kw_only=True):
    """TLS towards an upstream."""

    ca: Annotated[
        File | None, _about("A PEM bundle that is trusted instead of the system's own.")
    ] = None
    cert: Annotated[File | None, _about("A client certificate (PEM, with its chain).")] = None
    key: Annotated[File | None, _about("Its key, unless it stands in `cert`.")] = None
    server_name: Annotated[
        str | None, _about("The name to send as SNI and to verify, if not the upstream's host.")
    ] = None


class SetHeader(Section, frozen=True, kw_only=True):
    """A header that the daemon sets on every request to an upstream."""

    file: Annotated[
        File | None, _about("A file with the value; one line break at its end is dropped.")
    ] = None
    value: Annotated[
        Secret | None, _about("The value itself, usually from a variable: `${TOKEN}`.")
    ] = None
    prefix: Annotated[str, _about('What stands before the value, such as `"Bearer "`.')] = ""

    def __repr__(self) -> str:
        return f"SetHeader(file={self.file!r}, value={'set' if self.value else None})"


class AwsSign(Section, frozen=True, kw_only=True):
    """Signatures of AWS (SigV4)."""

    service: Annotated[
        SigningName | None,
        _about(
            "The service in the signature, such as `bedrock`; needed unless the upstream's host "
            "tells, as `bedrock-runtime.us-east-1.amazonaws.com` does."
        ),
    ] = None
    region: Annotated[
        SigningName | None, _about("The region in the signature; needed unless the host tells.")
    ] = None
    profile: Annotated[
        str | None,
        _about(
            "The profile of AWS's shared files to take the credentials from; `null`: whatever "
            "botocore's chain finds first."
        ),
    ] = None


class Sign(Section, frozen=True, kw_only=True):
    """Requests that the daemon signs itself."""

    aws: Annotated[
        AwsSign | None,
        _about(
            "Sign every request anew with AWS credentials; `{}` where the host tells everything."
        ),
    ] = None


class Settings(Section, frozen=True, kw_only=True):
    """What holds for every provider and may be repeated under one."""

    mode: Annotated[
        Mode,
        _about(
            "`enforce` refuses while a breaker is open, `observe` only computes and shows it, "
            "`off` forwards and touches nothing."
        ),
    ] = "enforce"
    scope: Annotated[
        Scope, _about("A breaker per (provider, model), or one for the whole provider.")
    ] = "model"
    on_reclassified: Annotated[
        OnReclassified,
        _about(
            "`correct`: a status that is not one of its class's own becomes it; `annotate`: it "
            "stays and only headers tell."
        ),
    ] = "correct"
    timeouts: Annotated[Timeouts, _about("The clocks of one call.")] = Timeouts()
    breaker: Annotated[BreakerConfig, _about("When it opens, and how it closes.")] = BreakerConfig()
    shedding: Annotated[Shedding, _about("What a rate limit does, and how long a wait may be.")] = (
        Shedding()
    )
    limits: Annotated[Limits, _about("How much at a time.")] = Limits()
    retry: Annotated[Retry, _about("What the daemon repeats itself.")] = Retry()
    rules: Annotated[
        tuple[OperatorRule, ...],
        _kind("rules"),
        _about(
            "The operator's own classification, asked before the dialect's; the first match "
            "decides. A provider's list replaces that of `defaults`."
        ),
    ] = ()


class ProviderSection(Settings, frozen=True, kw_only=True):
    """One upstream. Every key of `defaults` may stand here too."""

    upstream: Annotated[
        str,
        _kind("upstream"),
        _about(
            "Where calls go: `http://` or `https://` with host, port and a path before all paths, "
            "or `unix:/path`. Without user-info, query and fragment."
        ),
    ]
    dialect: Annotated[
        str,
        _kind("dialect"),
        _about(
            "How this upstream speaks of errors: `auto`, `generic`, `sidecar`, or a provider's "
            "name."
        ),
    ] = "auto"
    env: Annotated[
        Mapping[str, str],
        _kind("env"),
        _about(
            "Variables that `env` and `run` set, each with the path behind `http://LISTEN/PROVIDER`."
        ),
    ] = {}
    tls: Annotated[ClientTls, _about("TLS towards the upstream.")] = ClientTls()
    proxy: Annotated[
        Annotated[str, _kind("proxy")] | None,
        _about(
            "`env`: as HTTP_PROXY, HTTPS_PROXY and NO_PROXY say; `null`: none; or the URL of a "
            "proxy. A loopback upstream never goes through one."
        ),
    ] = "env"
    set_headers: Annotated[
        Mapping[str, SetHeader],
        _about("Headers that replace the caller's own on the way to the upstream."),
    ] = {}
    sign: Annotated[Sign, _about("Requests that are signed here.")] = Sign()


class DependencySection(Section, frozen=True, kw_only=True):
    """What the agent calls by itself; it asks for a permit first and reports how it went."""

    source: Annotated[
        DependencySource,
        _about("`database`: a driver raises its errors; `sdk`: a vendor's SDK does."),
    ]
    vendor: Annotated[
        Annotated[str, _kind("vendor")] | None,
        _about(
            "Which database it is: `postgresql`, `mysql`, …; one number means different things in "
            "different ones. `null` leaves it to the driver's classes."
        ),
    ] = None
    driver: Annotated[
        Annotated[str, _kind("name")] | None,
        _about("Which driver: `psycopg`, `sqlalchemy+asyncpg`, …; a report may name another."),
    ] = None
    sdk: Annotated[
        Annotated[str, _kind("name")] | None,
        _about("Which SDK it is: `stripe`, `boto3-s3`, …; `null` leaves it to its classes."),
    ] = None
    mode: Annotated[
        Mode,
        _about(
            "As under a provider; what is left out here and in `breaker` is that of `defaults`."
        ),
    ] = "enforce"
    breaker: Annotated[BreakerRules, _about("When it opens, and how it closes.")] = BreakerRules()
    lease: Annotated[
        Duration,
        _about(
            "How long a permit waits for its report; after that it is over and counts as neutral."
        ),
    ] = 600.0


Step = Annotated[int, Meta(ge=1, le=1_000_000_000)]
FaultKind = Literal[
    "refuse", "reset", "delay", "hang", "dribble", "cut", "error_event", "fake_200", "wrong_length"
]


FaultSource = Literal["http", "database", "sdk", "sidecar"]
FaultDecision = Literal[
    "breaker_open", "shed", "quota", "bulkhead", "connect_error", "timeout", "upstream_error",
    "local_network", "draining", "unknown_provider", "forbidden_host", "not_allowed", "bad_request",
    "sigv4_unsupported", "missing_credentials", "too_large", "internal_error",
]  # fmt: skip


class FaultSection(Section, frozen=True, kw_only=True):
    """One rule of `faults`: which calls, which of them, and what happens to them."""

    name: Annotated[str | None, _about("Shown in `x-sidecar-fault`, the log and the record.")] = (
        None
    )
    source: Annotated[
        FaultSource | None,
        _about(
            "Whose failure it is: `http` the provider's (the default), `sidecar` the daemon's own; "
            "`database` or `sdk` that of a dependency of this kind."
        ),
    ] = None
    provider: Annotated[str | None, _about("Calls of this provider alone.")] = None
    dependency: Annotated[
        str | None, _about("Calls of this dependency alone, which the agent makes by itself.")
    ] = None
    vendor: Annotated[
        str | None, _about("Calls of the dependencies with this `vendor`, or this `sdk`.")
    ] = None
    model: Annotated[str | None, _about("Calls of these models: `*` and `?` as in a shell.")] = None
    method: Annotated[str | None, _about("Calls with this method.")] = None
    path: Annotated[str | None, _about("Calls of these paths at the provider, likewise.")] = None
    nth: Annotated[Step | None, _about("Only the nth call that the rule names.")] = None
    every: Annotated[Step | None, _about("Every nth of them.")] = None
    share: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        _about("This share of them, drawn from `faults.seed`: the same in every run."),
    ] = None
    times: Annotated[Step | None, _about("At most so many injections.")] = None
    class_: Annotated[
        Literal["validation", "authentication", "rate_limit", "transient", "permanent"] | None,
        _about("The provider's own answer for this class of error."),
    ] = msgspec.field(name="class", default=None)
    kind: Annotated[
        FaultKind | None,
        _about(
            "`refuse` the connection, `reset` it, `delay` the call, `hang` before the first byte, "
            "`dribble` the answer, `cut` a stream after `events`, end it with an `error_event` "
            "after them, `fake_200` an error in a success, `wrong_length` an answer that is "
            "shorter than it says."
        ),
    ] = None
    decision: Annotated[
        FaultDecision | None,
        _about("With `source: sidecar`, which of its own answers; else that of the class."),
    ] = None
    after: Annotated[
        Duration | None,
        _about("How long to wait before it; of `dribble`: between two pieces."),
    ] = None
    events: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)],
        _about("How many events of a stream pass before `cut` or `error_event`."),
    ] = 1
    retry_after: Annotated[OptionalWait | None, _about("The wait that the answer asks for.")] = None
    status: Annotated[
        Annotated[int, Meta(ge=200, le=599)] | None, _about("In place of the provider's own.")
    ] = None
    code: Annotated[str | None, _about("In place of the provider's own.")] = None
    message: Annotated[str | None, _about("In place of the provider's own.")] = None
    breakers: Annotated[
        bool, _about("Whether the real breakers hear of it; else it is neutral for them.")
    ] = False


class FaultsSection(Section, frozen=True, kw_only=True):
    """Faults that are injected, to test how an agent recovers."""

    allowed: Annotated[
        bool,
        _about(
            "Whether calls may ask for a fault by `x-sidecar-fault`, and `POST /faults` may add "
            "rules for a while."
        ),
    ] = False
    seed: Annotated[
        Annotated[int, Meta(ge=1, le=2**31)], _about("From which shares are drawn.")
    ] = 1
    rules: Annotated[
        tuple[FaultSection, ...],
        _kind("faults"),
        _about("What is injected: the first rule that wants a call has it."),
    ] = ()


class FaultOrder(Section, frozen=True, kw_only=True):
    """The body of `POST /faults`."""

    rules: Annotated[tuple[FaultSection, ...], _kind("faults"), _about("As in `faults`.")] = ()
    for_: Annotated[Duration, _about("After which they are gone.")] = msgspec.field(
        name="for", default=600.0
    )
    seed: Annotated[Annotated[int, Meta(ge=1, le=2**31)], _about("As in `faults`.")] = 1


class Root(Section, frozen=True, kw_only=True):
    """The file as a whole."""

    listen: Annotated[
        Listeners,
        _about(
            "Where callers connect: `host:port`, `unix:/path`, `{address, tls: {cert, key}}`, or a "
            "list of these. `localhost` is both loopback addresses, whichever exists; port 0 is "
            "any free one."
        ),
    ] = (Listen(host="localhost", port=7600),)
    allowed_hosts: Annotated[
        tuple[str, ...],
        _kind("hosts"),
        _about("Host names that are accepted besides loopback names and any IP literal."),
    ] = ()
    admin: Annotated[AdminSection, _about("The admin plane.")] = AdminSection()
    probe: Annotated[ProbeSection, _about("The probe listener.")] = ProbeSection()
    log: Annotated[Log, _about("The log.")] = Log()
    drain: Annotated[Drain, _about("Stopping.")] = Drain()
    state_file: Annotated[
        File | None,
        _about(
            "A file for what must survive a restart: states and modes that were set by hand, waits "
            "that upstreams asked for, budgets that they said are spent; `null` = nothing "
            "survives. No other daemon may write it."
        ),
    ] = None
    faults: Annotated[FaultsSection, _about("Faults to test an agent with.")] = FaultsSection()
    defaults: Annotated[Settings, _about("What holds for every provider.")] = Settings()
    providers: Annotated[
        dict[str, ProviderSection],
        Meta(min_length=1),
        _about("The upstreams by name; names match `[a-z0-9][a-z0-9-]*`."),
    ]
    dependencies: Annotated[
        dict[str, DependencySection],
        _about(
            "Databases and services that the agent calls by itself, by name; no name is a "
            "provider's too."
        ),
    ] = {}


class ListenTls(Section, frozen=True, kw_only=True):
    """TLS on a listener."""

    cert: Annotated[File, _about("The certificate with its chain (PEM).")]
    key: Annotated[File, _about("Its key (PEM, without a passphrase).")]


class ListenSection(Section, frozen=True, kw_only=True):
    """The long form of an address to listen on."""

    address: Annotated[str, _about("`host:port` or `unix:/path`.")]
    tls: Annotated[ListenTls | None, _about("Serve TLS; `null` = plain HTTP.")] = None


class RuleSection(Section, frozen=True, kw_only=True):
    """One rule of `rules`."""

    when: Annotated[
        dict[str, Any],
        _kind("when"),
        _about(
            "`status` (a number, a list, or a family such as `5xx`), `header.NAME` and `body.PATH` "
            "(equal, a list, `{contains: …}`, `{empty: true}` or `{missing: true}`); all must hold."
        ),
    ]
    name: Annotated[str | None, _about("Reported as the rule that decided.")] = None
    class_: Annotated[
        Literal["validation", "authentication", "rate_limit", "transient", "permanent"],
        _about("The class of the error."),
    ] = msgspec.field(name="class")
    code: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:/#-]{1,64}$")] | None,
        _about("Its code; `null` keeps the source's own."),
    ] = None
    retryable: Annotated[
        bool | None, _about("`null` follows from the class: rate_limit and transient are.")
    ] = None
    verdict: Annotated[
        Literal["failure", "alive", "throttle", "neutral"] | None,
        _about("`null` follows from the class: failure for transient, throttle for rate_limit."),
    ] = None
