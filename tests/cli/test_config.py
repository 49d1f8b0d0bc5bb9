"""Settings come from the file, the environment and the options, and all faults are reported together."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config import SETTINGS, Config, read
from holdfast.errors import InvalidConfig
from holdfast.kernel.rates import Rate


def config(file: Path | None = None, environment: dict[str, str] | None = None, **options: object) -> Config:
    return read(file=file, environment=environment or {}, options=options)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_without_any_source_the_defaults_hold():
    assert config() == Config()


def test_every_field_is_a_setting_and_every_setting_a_field():
    assert [setting.name for setting in SETTINGS] == list(Config.__struct_fields__)


def test_the_file_yields_to_the_environment_and_both_yield_to_options():
    Path("holdfast.toml").write_text('port = 1\nhost = "a"\nnamespace = "file"\n')
    read = config(environment={"HOLDFAST_PORT": "2", "HOLDFAST_HOST": "b"}, port=3)
    assert (read.port, read.host, read.namespace) == (3, "b", "file")


def test_lists_are_lists_in_the_file_and_words_in_the_environment():
    Path("holdfast.toml").write_text('packs = ["shop.orders", "shop.stock:pack"]\n')
    assert config().packs == ("shop.orders", "shop.stock:pack")
    assert config(environment={"HOLDFAST_PACKS": "a, b c"}).packs == ("a", "b", "c")


@pytest.mark.parametrize(("text", "processes"), [("1", 1), ("4", 4), ("auto", "auto")])
def test_processes_are_a_number_or_as_many_as_there_are_cores(text, processes):
    assert config(environment={"HOLDFAST_PROCESSES": text}).processes == processes
    Path("holdfast.toml").write_text("processes = 8\n")
    assert config().processes == 8


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("HOLDFAST_URL", "postgres://x"),
        ("HOLDFAST_BUS", "redis://x"),
        ("HOLDFAST_ROLES", "gateway,waiter"),
        ("HOLDFAST_PORT", "http"),
        ("HOLDFAST_PORT", "65536"),
        ("HOLDFAST_CONCURRENCY", "0"),
        ("HOLDFAST_PROCESSES", "0"),
        ("HOLDFAST_PROCESSES", "all"),
        ("HOLDFAST_LEASE", "soon"),
        ("HOLDFAST_BUSY_LIMIT", "soon"),
        ("HOLDFAST_LEASE", "1ms"),
        ("HOLDFAST_LIMITS_START", "50 in a second"),
        ("HOLDFAST_LIMITS_PROXIES", "a proxy"),
        ("HOLDFAST_LIMITS_PATIENCE", "0s"),
        ("HOLDFAST_REQUIRE_KEYS", "maybe"),
        ("HOLDFAST_NAMESPACE", "n" * 300),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_what_is_allowed(variable, text):
    with pytest.raises(InvalidConfig, match=rf"{variable}: .* does not fit; allowed: "):
        config(environment={variable: text})


def test_all_faults_are_reported_together():
    Path("holdfast.toml").write_text('port = "x"\nnamespaec = "typo"\nconcurrency = true\n')
    with pytest.raises(InvalidConfig) as refused:
        config(environment={"HOLDFAST_LEASE": "never"}, url="nonsense")
    for part in ("holdfast.toml: port", "holdfast.toml: namespaec", "concurrency", "HOLDFAST_LEASE", "--url"):
        assert part in str(refused.value)


def test_a_file_that_is_named_must_be_there_and_be_toml(tmp_path):
    with pytest.raises(InvalidConfig, match=r"other\.toml: it cannot be read"):
        config(tmp_path / "other.toml")
    (tmp_path / "bad.toml").write_text("port = = 1")
    with pytest.raises(InvalidConfig, match=r"bad\.toml"):
        config(tmp_path / "bad.toml")


def test_an_api_key_is_never_part_of_a_message():
    assert "hf_secret" not in repr(config(environment={"HOLDFAST_API_KEY": "hf_secret"}))
    Path("holdfast.toml").write_text('api_key = ["hf_secret"]\n')
    with pytest.raises(InvalidConfig) as refused:
        config()
    assert "hf_secret" not in str(refused.value)


def test_roles_are_named_in_any_order_and_none_is_not_possible():
    assert config(environment={"HOLDFAST_ROLES": "scheduler, gateway"}).roles == ("gateway", "scheduler")
    Path("holdfast.toml").write_text("roles = []\n")
    with pytest.raises(InvalidConfig, match="allowed: one or more of gateway, worker, scheduler"):
        config()


@pytest.mark.parametrize("server", ["redis", "rediss", "valkey", "valkeys"])
@pytest.mark.parametrize("kind", ["", "+cluster", "+sentinel"])
def test_every_kind_of_redis_is_a_store(server, kind):
    url = f"{server}{kind}://a:1,b:2/0?name=shop"
    assert (config(url=url).url, config(url=url).is_gateway) == (url, False)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://shop:hunter2@a:6379/0?name=x", "redis://a:6379/0?name=x"),
        ("redis+cluster://:hunter2@a:1,b:2", "redis+cluster://a:1,b:2"),
        ("https://shop:hunter2@gate", "https://gate"),
        ("sqlite:////var/lib/a@b.db", "sqlite:////var/lib/a@b.db"),
        ("redis://a:6379", "redis://a:6379"),
        # Not escaped, as it should be: it cannot work, and is not shown all the same.
        ("redis://:/hunter2#hunter2?hunter2@hunter2 hunter2@a:1", "redis://a:1"),
        ("redis+cluster://:x,hunter2://hunter2@a:1,b:2", "redis+cluster://a:1,b:2"),
    ],
)
def test_a_password_in_a_url_is_never_shown(url, shown):
    read = config(url=url)
    assert (read.url, read.url_shown) == (url, shown)
    assert "hunter2" not in repr(read)


def test_a_password_is_not_part_of_a_complaint_either():
    with pytest.raises(InvalidConfig) as refused:
        config(url="postgres://shop:hunter2@a", bus="amqp://shop:hunter2@a,amqp://shop:hunter2@b")
    assert "//a" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_limits_are_a_table_of_the_file_and_variables_of_the_environment():
    Path("holdfast.toml").write_text(
        '[limits]\napi_key = "100/1s burst 200"\ntenant = "1000/m"\nproxies = ["10.0.0.0/8", "::1"]\n'
    )
    read = config(environment={"HOLDFAST_LIMITS_START": "50/1s", "HOLDFAST_LIMITS_ADDRESS": "20/1s burst 100"})
    assert read.limits_api_key == Rate(100, per="1s", burst=200)
    assert read.limits_tenant == Rate(1_000, per="1m")
    assert (read.limits_start, read.limits_address) == (Rate(50, per="1s"), Rate(20, per="1s", burst=100))
    assert (read.limits_patience, read.rate_limits.patience) == ("100ms", "100ms")
    assert read.limits_proxies == ("10.0.0.0/8", "::1/128")


def test_all_faults_of_limits_are_reported_together():
    Path("holdfast.toml").write_text(
        '[limits]\napi_key = "0/1s"\ntenant = "100/1"\nstart = 50\naddres = "1/1s"\nproxies = ["10.0.0.1/8"]\n'
    )
    with pytest.raises(InvalidConfig) as refused:
        config(environment={"HOLDFAST_LIMITS_ADDRESS": "1/1s burst 0"})
    said = str(refused.value)
    for name in ("limits_api_key", "limits_tenant", "limits_start", "limits_addres: no setting", "limits_proxies"):
        assert f"holdfast.toml: {name}" in said
    assert "HOLDFAST_LIMITS_ADDRESS: " in said
    assert "allowed: how many in how long" in said
