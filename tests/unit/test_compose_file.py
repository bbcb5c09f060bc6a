"""Unit tests: the compose file is valid, pinned, guarded, and says the same as the files it stands beside."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from streams.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]

# ${NAME}, ${NAME:-default}, ${NAME:?message}; `$$` is compose's escape for a dollar of the container's own shell.
_VARIABLE = re.compile(r"(?<!\$)\$\{([A-Z_]+)(?::([-?])([^}]*))?\}")


def _example() -> dict[str, str]:
    lines = (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_it_follows_the_compose_specification() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "docker-compose.yml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned_to_a_full_version(name: str) -> None:
    assert re.search(r":v?\d+\.\d+\.\d+$", SERVICES[name]["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_that_stays_has_a_health_check(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check == {"disable": True} if name == "setup" else check["test"]


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_may_gain_privileges(name: str) -> None:
    assert SERVICES[name]["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in SERVICES[name]["security_opt"]
    assert not SERVICES[name].get("privileged", False)


@pytest.mark.parametrize("name", ["worker", "api"])
def test_worker_and_api_wait_for_healthy_servers_and_the_finished_setup(name: str) -> None:
    conditions = {other: wait["condition"] for other, wait in SERVICES[name]["depends_on"].items()}
    assert conditions.pop("setup") == "service_completed_successfully"
    assert conditions == dict.fromkeys(["kafka", "mysql", "qdrant"], "service_healthy")


def test_nothing_is_published_beyond_loopback() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_worker_and_api_do_not_hold_the_account_that_owns_the_tables() -> None:
    owner = "MEMRIVER_OWNER_PASSWORD"
    assert owner in str(SERVICES["setup"]["environment"])
    assert owner not in str(SERVICES["worker"]["environment"]) + str(SERVICES["api"]["environment"])


def test_a_secret_has_no_default_and_an_empty_one_stops_compose() -> None:
    secrets = {name: how for name, how, _ in _VARIABLE.findall(TEXT) if re.search("_PASSWORD$|_KEY$", name)}
    # Other people's keys are the exception: without a model the channel is off, and vectors have a local embedder.
    assert secrets.pop("MEMRIVER_MODEL_API_KEY") == "-"
    assert secrets.pop("MEMRIVER_EMBEDDER_API_KEY") == "-"
    assert secrets
    assert set(secrets.values()) == {"?"}
    assert all(_example()[name] == "" for name in secrets)


def test_the_example_has_every_variable_with_the_default_that_compose_uses_and_no_other() -> None:
    defaults = {name: default for name, how, default in _VARIABLE.findall(TEXT) if how == "-"}
    example = _example()
    assert {name for name, _, _ in _VARIABLE.findall(TEXT)} == set(example)
    assert {name: example[name] for name in defaults} == defaults


def test_make_env_fills_exactly_the_secrets_of_our_own(tmp_path: Path) -> None:
    for name in ("Makefile", ".env.example"):
        shutil.copy(ROOT / name, tmp_path)
    subprocess.run(["make", ".env"], cwd=tmp_path, capture_output=True, check=True)

    made = dict(
        line.split("=", 1)
        for line in (tmp_path / ".env").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    )
    filled = {name: value for name, value in made.items() if value != _example()[name]}
    assert set(filled) == {name for name, how, _ in _VARIABLE.findall(TEXT) if how == "?"}
    master = filled.pop("MEMRIVER_MASTER_KEY")
    assert len(base64.b64decode(master, validate=True)) == 32
    assert all(re.fullmatch("[0-9a-f]{48}", value) for value in filled.values())
    assert len(set(filled.values())) == len(filled)
    assert (tmp_path / ".env").stat().st_mode & 0o077 == 0


def test_every_setting_that_compose_passes_is_one_that_memriver_reads() -> None:
    passed = {name for name in SERVICES["worker"]["environment"] if name.startswith("MEMRIVER_")}
    assert passed <= {f"MEMRIVER_{field}".upper() for field in Settings.model_fields}


def test_every_mounted_file_is_there() -> None:
    mounts = [mount for service in SERVICES.values() for mount in service.get("volumes", []) if mount.startswith("./")]
    assert mounts
    assert all((ROOT / mount.split(":")[0]).exists() for mount in mounts)


def test_the_tests_broker_is_the_version_that_compose_runs() -> None:
    pom = ElementTree.parse(ROOT / "ops" / "dev" / "kafka" / "pom.xml")
    version = pom.findtext("{*}properties/{*}kafka.version")
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{version}"


def test_the_qdrant_server_is_of_the_client_s_minor_version() -> None:
    locked = re.search(r"^qdrant-client==(\d+\.\d+)\.", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.M)
    assert locked is not None
    assert SERVICES["qdrant"]["image"].startswith(f"qdrant/qdrant:v{locked[1]}.")
