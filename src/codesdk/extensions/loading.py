"""Directories → loaded extensions and an inventory that says of each other one why it is not.

Whatever an extension does while it is loaded (raise, block, exit, register nonsense) is its own rejection.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from codesdk.contract.api import ExtensionInfo
from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.extensions.manifest import Manifest, bound_to, check_fit, read_manifest
from codesdk.extensions.outcomes import ActionStatus, AgentRuntimeProfile, HandlerTimeout
from codesdk.extensions.process import ProcessWorker
from codesdk.extensions.registry import Registration
from codesdk.extensions.signals import APP_SERVER, DELTAS, KNOWN, Origin
from codesdk.extensions.snapshot import Snapshot, take_snapshot
from codesdk.extensions.sources import Candidate, Pins, find_candidates
from codesdk.extensions.thread import ThreadWorker
from codesdk.extensions.worker import Code, Hosting, Worker
from codesdk.foreign import name_of

AppAction = Callable[[dict[str, Any], Origin], Awaitable[ActionStatus]]
TrustMode = Literal["disabled", "warn", "enforced"]
LOAD_S = 10.0


class ExtensionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where extensions come from, and how far what they declare binds them."""

    project: str | None = None
    """A directory whose `.codesdk/extensions` are loaded, each once it is trusted."""
    packages: bool = False
    """Whether installed packages that say they are extensions are loaded."""
    roots: Sequence[str] = ()
    """Directories that are extensions, or hold some."""
    trust: TrustMode = "enforced"
    """What becomes of an event or an action that a manifest does not declare: nothing, a warning, a refusal."""
    hosting: Hosting = "in_process"
    """Where their code runs: in a thread each of this process, or in a process each."""
    environment: Sequence[str] = ()
    """The names of variables of ours that those in processes of their own have as well."""
    actions: Mapping[str, AppAction] = {}
    """An application's own actions, by type. Each is given the payload and the event's origin, and says how it went."""


class Extension(NamedTuple):
    """A loaded extension."""

    manifest: Manifest
    registrations: Sequence[Registration]
    worker: Worker
    runtimes: frozenset[str]
    """The runtimes whose events it is told of; empty for all."""


class Place(NamedTuple):
    """A handler and the extension that it belongs to."""

    extension: Extension
    registration: Registration


class ExtensionSet:
    """The extensions of one load. It ends when it was replaced and nobody uses it any more."""

    def __init__(
        self, generation: int, extensions: Sequence[Extension], inventory: Sequence[ExtensionInfo]
    ) -> None:
        self.generation = generation
        self.extensions = extensions
        self.inventory = inventory
        self.handlers = _ordered(extensions)
        self.jobs = _job_places(extensions)
        self._uses = 1

    @property
    def in_use(self) -> bool:
        """Whether somebody keeps it."""
        return self._uses > 0

    def retain(self) -> "ExtensionSet":
        """Keep it until `release`."""
        self._uses += 1
        return self

    def release(self) -> None:
        """Release it."""
        self._uses -= 1
        if not self._uses:
            for extension in self.extensions:
                extension.worker.close()

    async def end(self) -> None:
        """End its extensions, whoever still uses them, and wait until nothing of them runs that can be ended."""
        for extension in self.extensions:
            extension.worker.close()
        for extension in self.extensions:
            await extension.worker.ended()


async def load_set(
    options: ExtensionOptions,
    pins: Pins,
    profiles: Sequence[AgentRuntimeProfile],
    generation: int,
    load_s: float = LOAD_S,
) -> ExtensionSet:
    """Find and load all extensions. Must not raise because of one of them."""
    project = None if options.project is None else Path(options.project)
    roots = [Path(root) for root in options.roots]
    candidates = await asyncio.to_thread(find_candidates, project, options.packages, roots)
    trusted: Mapping[str, str] = {}
    if any(candidate.kind == "project" for candidate in candidates):
        trusted = await asyncio.to_thread(pins.read)
    loaded: list[Extension] = []
    inventory: list[ExtensionInfo] = []
    for candidate in candidates:
        loader = _Loader(candidate, options, trusted, profiles, loaded, load_s)
        inventory.append(await loader.load())
    return ExtensionSet(generation, loaded, inventory)


class _Loader:
    """Loads one candidate into a set, or says why not."""

    def __init__(
        self,
        candidate: Candidate,
        options: ExtensionOptions,
        trusted: Mapping[str, str],
        profiles: Sequence[AgentRuntimeProfile],
        loaded: list[Extension],
        load_s: float,
    ) -> None:
        self._candidate = candidate
        self._trust = options.trust
        self._hosting = options.hosting
        self._env = {name: os.environ[name] for name in options.environment if name in os.environ}
        self._trusted = trusted
        self._profiles = profiles
        self._loaded = loaded
        self._load_s = load_s
        self._manifest: Manifest | None = None
        self._warnings: list[str] = []

    async def load(self) -> ExtensionInfo:
        try:
            extension = await self._try()
        except CodeSDKError as error:
            return self._info(None, error.message)
        self._loaded.append(extension)
        return self._info(extension, None)

    async def _try(self) -> Extension:
        candidate = self._candidate
        if candidate.problem is not None:
            raise InvalidRequest(candidate.problem)
        snapshot = await asyncio.to_thread(take_snapshot, candidate.root)
        if candidate.kind == "project":
            _check_pin(snapshot, self._trusted.get(str(candidate.root)))
        manifest = self._manifest = read_manifest(snapshot)
        check_fit(manifest, self._profiles)
        self._check_unique(manifest)
        code = Code(manifest.name, manifest.entrypoints.events, snapshot, self._env)
        worker = ThreadWorker(code) if self._hosting == "in_process" else ProcessWorker(code)
        try:
            registrations = await self._register(worker)
            self._check_events(manifest, [one for one in registrations if not one.attempts])
            self._check_jobs([one for one in registrations if one.attempts])
        except BaseException:
            worker.close()
            await worker.ended()
            raise
        return Extension(manifest, registrations, worker, bound_to(manifest, self._profiles))

    async def _register(self, worker: Worker) -> Sequence[Registration]:
        try:
            return await worker.register(self._load_s)
        except HandlerTimeout:
            raise InvalidRequest(
                f"It did not register within {self._load_s:g} s. Do nothing on import that can block."
            ) from None
        except CodeSDKError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it raises, it is not loaded
            raise InvalidRequest(f"It could not be loaded: {name_of(error).rstrip('.')}.") from None

    def _check_unique(self, manifest: Manifest) -> None:
        for other in self._loaded:
            if other.manifest.name == manifest.name:
                raise InvalidRequest(f"An extension named {manifest.name} was loaded before it.")
            if other.manifest.agent_id == manifest.agent_id:
                raise InvalidRequest(
                    f"The agent_id {manifest.agent_id} is that of {other.manifest.name}, loaded before it."
                )

    def _check_events(self, manifest: Manifest, registrations: Sequence[Registration]) -> None:
        for name in dict.fromkeys(one.event_type for one in registrations):
            if name in DELTAS:
                raise InvalidRequest(f"It subscribes to {name}; deltas are for streams, not for extensions.")
            if name not in KNOWN and not name.startswith(APP_SERVER):
                self._warnings.append(f"It subscribes to {name}, which this CodeSDK never tells of.")
        if self._trust == "disabled":
            return
        declared = set(manifest.capabilities.events)
        for name in dict.fromkeys(one.event_type for one in registrations if one.event_type not in declared):
            words = f"It subscribes to {name}, which capabilities.events does not declare."
            if self._trust == "enforced":
                raise InvalidRequest(words)
            self._warnings.append(words)

    def _check_jobs(self, registrations: Sequence[Registration]) -> None:
        known = _job_places(self._loaded)
        for name in [one.event_type for one in registrations if one.event_type in known]:
            other = known[name].extension.manifest.name
            raise InvalidRequest(f"Jobs of the type {name} are those of {other}, loaded before it.")

    def _info(self, extension: Extension | None, reason: str | None) -> ExtensionInfo:
        manifest = self._manifest
        registered = () if extension is None else extension.registrations
        handlers = [one for one in registered if not one.attempts]
        return ExtensionInfo(
            status="rejected" if extension is None else "loaded",
            root=str(self._candidate.root),
            source=self._candidate.kind,
            name=None if manifest is None else manifest.name,
            version=None if manifest is None else manifest.version,
            agent_id=None if manifest is None else manifest.agent_id,
            display_name=None if manifest is None else manifest.display_name,
            reason=reason,
            warnings=self._warnings,
            events=sorted({one.event_type for one in handlers}),
            actions=[] if manifest is None else manifest.capabilities.actions,
            handlers=len(handlers),
            jobs=sorted(one.event_type for one in registered if one.attempts),
            runtimes=[] if extension is None else sorted(extension.runtimes),
        )


def _check_pin(snapshot: Snapshot, pinned: str | None) -> None:
    if pinned is None:
        raise InvalidRequest(f"It is not trusted. Read it, then: codesdk extensions trust {snapshot.root}")
    if pinned != snapshot.hash:
        raise InvalidRequest(
            "It was changed since it was trusted. Look at what changed, then: codesdk extensions trust"
            f" {snapshot.root}"
        )


def _ordered(extensions: Sequence[Extension]) -> Mapping[str, Sequence[Place]]:
    """Return the handlers of each type of event in the order in which they are called."""
    found: dict[str, list[Place]] = {}
    for extension in extensions:
        for registration in extension.registrations:
            if not registration.attempts:
                found.setdefault(registration.event_type, []).append(Place(extension, registration))
    for places in found.values():
        places.sort(key=lambda place: place.registration.order)
    return found


def _job_places(extensions: Sequence[Extension]) -> Mapping[str, Place]:
    """Return the handler of each type of jobs."""
    return {
        registration.event_type: Place(extension, registration)
        for extension in extensions
        for registration in extension.registrations
        if registration.attempts
    }
