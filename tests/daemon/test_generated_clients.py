"""The OpenAPI document as generators of clients take it: what they make of it compiles, and works against a daemon."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.rig import daemon

from codesdk.contract.events import EVENTS
from codesdk.daemon.app import OPERATIONS
from codesdk.daemon.openapi import describe

ROOT = Path(__file__).parents[2]
SAMPLES = Path(__file__).parent / "typescript"
DOCUMENT: Any = json.loads(json.dumps(describe(OPERATIONS)))
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]


def nodes(node: Any, at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema below a node, with its place."""
    if isinstance(node, list):
        for number, item in enumerate(node):
            yield from nodes(item, f"{at}[{number}]")
    elif isinstance(node, dict):
        yield at, node
        for name, item in node.items():
            yield from nodes(item, f"{at}.{name}")


def test_the_events_are_one_union_that_their_type_tells_apart():
    mapping = {event.type: f"#/components/schemas/{event.__name__}" for event in EVENTS}
    event = SCHEMAS["Event"]
    assert event["oneOf"] == [{"$ref": ref} for ref in mapping.values()]
    assert event["discriminator"] == {"propertyName": "type", "mapping": mapping}
    for kind in EVENTS:
        schema = SCHEMAS[kind.__name__]
        assert schema["properties"]["type"] == {"enum": [kind.type], "type": "string"}
        assert schema["properties"]["payload"]["$ref"].rpartition("/")[2] in SCHEMAS
        assert {"type", "seq", "trace", "payload"} <= set(schema["required"])
    assert SCHEMAS["EventPage"]["properties"]["events"]["items"] == {"$ref": "#/components/schemas/Event"}


def test_every_reference_leads_somewhere_and_no_name_is_that_of_a_module():
    refs = {node["$ref"] for _, node in nodes(DOCUMENT) if isinstance(node.get("$ref"), str)}
    assert {ref.rpartition("/")[2] for ref in refs} <= set(SCHEMAS)
    assert [name for name in SCHEMAS if not name.isalnum()] == []


def test_maps_say_that_they_are_maps_and_no_default_makes_a_field_required():
    maps = [at for at, node in nodes(SCHEMAS) if node.get("type") == "object" and "properties" not in node]
    assert maps
    places = dict(nodes(SCHEMAS))
    assert [at for at in maps if "additionalProperties" not in places[at]] == []
    assert [at for at, node in nodes(SCHEMAS) if "default" in node and not at.endswith(".properties")] == []
    create = SCHEMAS["CreateSession"]
    assert create["required"] == ["workspace"]
    assert create["properties"]["permission_mode"]["description"] == 'Default: "ask".'
    unions = [node for _, node in nodes(SCHEMAS) if "discriminator" in node]
    assert len(unions) > 1
    assert all("oneOf" in node for node in unions)


def test_every_parameter_is_described():
    parameters = [
        (operation["operationId"], parameter)
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
        for parameter in operation["parameters"]
    ]
    assert [(name, one["name"]) for name, one in parameters if not one["description"]] == []
    names = {one["name"] for _, one in parameters if one["in"] == "header"}
    assert names == {"Idempotency-Key", "Last-Event-ID"}
    # What every operation takes is said once, and is not an argument of each generated function.
    for header in ("X-Request-Id", "X-Client-Id", "traceparent"):
        assert f"`{header}`" in DOCUMENT["info"]["description"]
    (limit,) = [one for name, one in parameters if name == "listSessions" and one["name"] == "limit"]
    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}


def run(folder: Path, program: str, *args: str) -> str:
    """Run a program of the judges in a folder and return what it prints. Anything but success is a failure."""
    done = subprocess.run(
        [program, *args], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_two_generators_make_clients_that_compile_and_run_a_task(tmp_path: Path):
    folder, tools = tmp_path / "client", ROOT / "node_modules" / ".bin"
    shutil.copytree(SAMPLES, folder)
    (folder / "node_modules").symlink_to(ROOT / "node_modules")
    with daemon(tmp_path / "data") as running:
        (folder / "openapi.json").write_text(json.dumps(running.get("/openapi.json")))
        run(folder, str(tools / "openapi-typescript"), "openapi.json", "-o", "schema.d.ts")
        run(folder, str(tools / "openapi-ts"), "-i", "openapi.json", "-o", "hey")
        run(folder, str(tools / "tsc"), "-p", ".")
        for sample in ("with-openapi-fetch", "with-hey-api"):
            printed = run(folder, "node", f"out/{sample}.js", running.url, str(tmp_path)).splitlines()
            assert printed[0] == "session.created scripted ask"
            assert printed[-1] == "task.completed Hello there."
            assert "task.started" in printed
