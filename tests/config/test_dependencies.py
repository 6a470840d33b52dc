"""What the agent calls by itself, in the file."""

import pytest

from sidecar.config.overrides import Overrides

HEAD = "providers: {a: {upstream: https://api.example}}\n"
DB = "dependencies:\n  db:\n    source: database\n"


def dependency(load_text, text="", head=HEAD, **options):
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    return load_text(head + DB + lines, **options).dependencies["db"]


def test_none_by_default(load_text):
    assert load_text(HEAD).dependencies == {}
    assert load_text(HEAD + "dependencies: null").dependencies == {}
    assert load_text(HEAD + "dependencies: {}").dependencies == {}


def test_the_one_of_the_contract(load_text):
    config = load_text(
        HEAD + "dependencies:\n  orders-db: {source: database, vendor: postgresql}\n"
    )
    (found,) = config.dependencies.values()
    assert (found.name, found.source, found.vendor) == ("orders-db", "database", "postgresql")
    assert (found.driver, found.sdk, found.mode, found.lease) == (None, None, "enforce", 600)
    assert found.breaker.consecutive_failures == 5
    assert found.system == "postgresql"


def test_an_sdk(load_text):
    config = load_text(HEAD + "dependencies: {pay: {source: sdk, sdk: boto3-s3}}\n")
    assert config.dependencies["pay"].system == "boto3-s3"


def test_every_key(load_text):
    found = dependency(
        load_text,
        "vendor: mysql\ndriver: sqlalchemy+aiomysql\nmode: observe\nlease: 90s\n"
        "breaker: {consecutive_failures: 3, window: 10s, minimum_calls: 4, failure_ratio: 0.2,"
        " open_for: 1s, open_max: 9s, jitter: 0, probes: 2, successes: 1}",
    )
    assert (found.driver, found.mode, found.lease) == ("sqlalchemy+aiomysql", "observe", 90)
    assert (found.breaker.consecutive_failures, found.breaker.successes) == (3, 1)


def test_defaults_hold_here_too(load_text):
    head = HEAD + (
        "defaults:\n  mode: observe\n  shedding: {retry_after_max: 2h}\n"
        "  breaker: {open_for: 7s, fail_fast: false, repeat_window: 0}\n"
    )
    found = dependency(load_text, "breaker: {probes: 3}", head)
    assert (found.mode, found.breaker.open_for, found.breaker.probes) == ("observe", 7, 3)
    assert found.retry_after_max == 7200
    assert dependency(load_text, "mode: enforce", head).mode == "enforce"


def test_observe_from_the_command_line_stands_above(load_text):
    for mode, expected in (("enforce", "observe"), ("off", "off")):
        overrides = Overrides(observe=True)
        assert dependency(load_text, f"mode: {mode}", overrides=overrides).mode == expected


def test_it_is_shown_and_can_be_loaded_again(load_text):
    config = load_text(HEAD + DB + "    vendor: mysql\n    lease: 90s\n")
    shown = config.redacted()["dependencies"]["db"]
    assert (shown["source"], shown["vendor"], shown["lease"]) == ("database", "mysql", "90s")
    assert "fail_fast" not in shown["breaker"]
    other = load_text(HEAD + DB + "    vendor: mysql\n    lease: 91s\n")
    assert other.hash != config.hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("db: {}", "3: dependencies.db.source: is missing; database or sdk"),
        ("db: null", "3: dependencies.db.source: is missing; database or sdk"),
        (
            "db: {source: databse}",
            (
                "3: dependencies.db.source: must be one of database, sdk; is databse;"
                ' did you mean "database"?'
            ),
        ),
        ("db: 3", "3: dependencies.db: a mapping is needed, not a single value"),
        (
            "db: {source: database, vendr: mysql}",
            '3: dependencies.db.vendr: unknown key; did you mean "vendor"?',
        ),
        (
            "db: {source: database, sdk: openai}",
            "3: dependencies.db.sdk: has no effect: the source is database",
        ),
        (
            "db: {source: sdk, vendor: mysql}",
            "3: dependencies.db.vendor: has no effect: the source is sdk",
        ),
        (
            "db: {source: sdk, driver: mysql}",
            "3: dependencies.db.driver: has no effect: the source is sdk",
        ),
        (
            "db: {source: sdk, sdk: 'a b'}",
            "3: dependencies.db.sdk: not a name; letters, digits and . _ + -, up to 64 of them",
        ),
        ("db: {source: sdk, lease: 0}", "3: dependencies.db.lease: must be at least 1ms, is 0"),
        (
            "db: {source: sdk, breaker: {consecutive_failures: 0, failure_ratio: 0}}",
            (
                "3: dependencies.db.breaker.consecutive_failures: both rules are off, so the breaker"
                ' could never open; to turn it off on purpose, write "mode: off"'
            ),
        ),
        (
            "db: {source: sdk, breaker: {open_max: 1s}}",
            "3: dependencies.db.breaker.open_max: open_max must not be less than open_for",
        ),
        (
            "db: {source: sdk, breaker: {fail_fast: true}}",
            '3: dependencies.db.breaker.fail_fast: unknown key; it belongs under "defaults.breaker"',
        ),
        (
            "Orders_DB: {source: database}",
            (
                "3: dependencies.Orders_DB: a name matches [a-z0-9][a-z0-9-]*, up to 63 characters;"
                ' such as "orders-db"'
            ),
        ),
        (
            "a: {source: database}",
            "3: dependencies.a: the name is taken, by providers.a",
        ),
        ("db: {source: '${UNSET}'}", "3: dependencies.db.source: UNSET is not set"),
    ],
)
def test_what_is_wrong_has_its_line(text, expected, problems_of):
    found = problems_of(HEAD + f"dependencies:\n  {text}\n")
    assert len(found) == 1, found
    assert found[0].startswith(f"breakers.yaml:{expected}")


def test_a_name_of_a_disabled_provider_is_taken_too(problems_of):
    text = "providers:\n  a: {upstream: https://a.example}\n  b: {upstream: '${UNSET}'}\n"
    (line,) = problems_of(text + "dependencies:\n  b: {source: sdk}\n")
    assert line == "breakers.yaml:5: dependencies.b: the name is taken, by providers.b"


@pytest.mark.parametrize(
    ("vendor", "hint"),
    [("postgresqll", 'did you mean "postgresql"?'), ("zzzzzzz", "known are cassandra, clickhouse")],
)
def test_a_vendor_that_is_not_known_is_a_warning(vendor, hint, load_text):
    (warning,) = load_text(HEAD + DB + f"    vendor: {vendor}\n").warnings
    assert "breakers.yaml:5: dependencies.db.vendor: no such database is known" in warning
    assert hint in warning


@pytest.mark.parametrize("vendor", ["postgres", "mariadb", "mssql", "CockroachDB", "redis"])
def test_vendors_have_many_names(vendor, load_text):
    assert load_text(HEAD + DB + f"    vendor: {vendor}\n").warnings == ()
