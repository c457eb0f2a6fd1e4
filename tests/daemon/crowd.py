"""Many sessions of one daemon at once: made, started and told to go on, as fast as the daemon lets its callers."""

import asyncio
from collections.abc import Iterable
from typing import Any

import httpx2
from tests.daemon.rig import Daemon

AT_ONCE = 16


class Crowd:
    """Sessions that play the same script. Requests that are too many wait as long as they are told to."""

    def __init__(self, running: Daemon, script: Any) -> None:
        self._url = running.url
        self._new = {
            "runtime": "scripted",
            "workspace": str(running.data_dir.parent),
            "settings": {"runtime_config": {"script": script}},
        }
        self._room = asyncio.Semaphore(AT_ONCE)

    async def create(self, count: int) -> list[str]:
        """Create sessions and return their ids."""
        made = await self._post_all(("/v1/sessions", self._new) for _ in range(count))
        return [row["session_id"] for row in made]

    async def start(self, sessions: Iterable[str]) -> list[str]:
        """Start a task in each and return the tasks' ids."""
        begun = await self._post_all((f"/v1/sessions/{one}/tasks", {"message": "Go."}) for one in sessions)
        return [row["task_id"] for row in begun]

    async def steer(self, sessions: Iterable[str]) -> None:
        """Tell all to go on."""
        await self._post_all((f"/v1/sessions/{one}/steer", {"message": "Go on."}) for one in sessions)

    async def ends(self, tasks: Iterable[str]) -> list[int]:
        """Return the seq of each task's last event, as it is stored."""
        return [row["ended_seq"] for row in await self._get_all(f"/v1/tasks/{task}" for task in tasks)]

    async def checked(self, sessions: Iterable[str]) -> list[int]:
        """Return how many events each has stored; every log must hold."""
        reports = await self._get_all(f"/v1/sessions/{one}/verify" for one in sessions)
        assert [report["findings"] for report in reports if not report["ok"]] == []
        return [report["events"] for report in reports]

    async def _get_all(self, paths: Iterable[str]) -> list[Any]:
        async with httpx2.AsyncClient(base_url=self._url, timeout=120) as http:
            return await asyncio.gather(*(self._ask(http, "GET", path) for path in paths))

    async def _post_all(self, posts: Iterable[tuple[str, Any]]) -> list[Any]:
        async with httpx2.AsyncClient(base_url=self._url, timeout=120) as http:
            return await asyncio.gather(*(self._ask(http, "POST", path, body) for path, body in posts))

    async def _ask(self, http: httpx2.AsyncClient, method: str, path: str, body: Any = None) -> Any:
        async with self._room:
            while True:
                answer = await http.request(method, path, json=body)
                if answer.status_code != 429:
                    assert answer.is_success, answer.text
                    return answer.json()
                await asyncio.sleep(float(answer.headers["retry-after"]))
