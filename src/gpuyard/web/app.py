"""Puts the dashboard together: pages and modules for browsers, and what they ask."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from gpuyard import __version__
from gpuyard.errors import GpuyardError, UsageError
from gpuyard.web.api.comparing import comparing_router
from gpuyard.web.api.live import live_router
from gpuyard.web.api.results import results_router
from gpuyard.web.api.training import training_router
from gpuyard.web.collector import Collector
from gpuyard.web.comparisons import Comparisons
from gpuyard.web.folders import FolderList
from gpuyard.web.guarding import Access, AccessGuard, cookie_name
from gpuyard.web.sources.base import LiveSource
from gpuyard.web.stream import EventStream

MOST_CONNECTIONS = 400  # at once; beyond them a browser is asked to come again
LONGEST_HEAD = 32_768  # bytes of the headers of a request
IDLE = 30  # s after which a connection that asks for nothing is closed
GRACE = 3  # s that requests get to end when the server is stopped
PAGES = ("", "results", "training", "compare")
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}


@dataclass(frozen=True)
class Dashboard:
    """A dashboard: what it shows, and to whom."""

    source: LiveSource
    access: Access
    folders: tuple[Path, ...] = ()  # where experiments and trainings lie


class Login(BaseModel):
    """A token that somebody has typed, or that was in the address."""

    token: str = Field(max_length=1000)


def create_app(shown: Dashboard) -> FastAPI:
    """Return the application; it begins to look when it is started."""
    stream = EventStream()
    collector = Collector(shown.source, stream)
    comparisons = Comparisons(lambda done: stream.publish("done", done.told()))
    folders = FolderList(shown.folders)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        stream.start()
        collector.start()
        yield
        stream.close()
        comparisons.close()
        collector.close()

    app = FastAPI(title="gpuyard", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url="/api/openapi.json")
    app.state.collector, app.state.stream = collector, stream
    app.add_middleware(AccessGuard, access=shown.access)
    _errors(app)
    _entrance(app, shown)
    app.include_router(live_router(collector, shown.access))
    for router in (results_router(folders), training_router(folders), comparing_router(comparisons)):
        app.include_router(router)
    app.router.routes.append(EventRoute(stream))
    _assets(app)
    return app


def _errors(app: FastAPI) -> None:
    """Answer every failure with one sentence."""

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, GpuyardError)
        text = str(error).removesuffix(f"; hint: {error.hint}") if error.hint else str(error)
        return JSONResponse({"error": text[:1000], "hint": error.hint[:300]}, 400 if error.exit_code == 2 else 409)

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": str(error.detail)}, error.status_code, headers=error.headers)

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        return JSONResponse({"error": f"{'.'.join(map(str, first['loc']))[:100]}: {first['msg'][:200]}"}, 422)

    app.add_exception_handler(GpuyardError, refused)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)


def _entrance(app: FastAPI, shown: Dashboard) -> None:
    access = shown.access

    @app.get("/api/about", tags=["about"])
    def about(request: Request) -> dict[str, Any]:
        """Say what this is, and whether a token is needed."""
        admitted = access.admits(dict(request.headers.items()), cookie_name(request.scope))
        return {"gpuyard": __version__, "admitted": admitted, "actions": access.actions, "token": bool(access.token)}

    @app.post("/api/login", tags=["about"])
    def login(given: Login, request: Request) -> Response:
        """Exchange the token for a cookie that no script can read."""
        if not access.is_token(given.token.strip()):
            raise HTTPException(403, "that is not the token")
        answer = JSONResponse({"admitted": True})
        answer.set_cookie(cookie_name(request.scope), access.cookie(), httponly=True, samesite="strict", max_age=30 * 86_400)
        return answer


class EventRoute(BaseRoute):
    """Serves the stream of events, outside of what FastAPI would wrap around it."""

    def __init__(self, stream: EventStream) -> None:
        self.path = "/api/live/events"
        self._stream = stream

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return (Match.FULL if scope["type"] == "http" and scope["path"] == self.path and scope["method"] == "GET" else Match.NONE), {}

    def url_path_for(self, name: str, /, **path_params: Any) -> Any:
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        await self._stream.serve(headers.get(b"last-event-id", "")[:60], receive, send)


def _assets(app: FastAPI) -> None:
    """Serve the page, its modules and its styles, each by its name in this package."""
    folder = Path(str(files("gpuyard.web").joinpath("static")))
    known = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file() and path.suffix in KINDS}
    palette = Path(str(files("gpuyard.report.page").joinpath("palette.css")))

    @app.get("/static/{name:path}", include_in_schema=False)
    def asset(name: str) -> Response:
        path = palette if name == "palette.css" else known.get(name)
        if path is None:
            raise HTTPException(404, "there is no such file")
        return FileResponse(path, media_type=KINDS[path.suffix])

    def page(_: str) -> Response:
        return FileResponse(folder / "index.html", media_type="text/html")

    for name in PAGES:
        app.add_api_route(f"/{name}", partial(page, name), include_in_schema=False)


# ── the server ──


def listen(host: str, port: int) -> socket.socket:
    """Listen on a port; 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family, backlog=512)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it; head and body would lie 40 ms apart
        return made
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{host}:{port}: cannot be listened on: {why}", hint="another --port; 0 is any that is free") from None


def configuration(app: FastAPI) -> uvicorn.Config:
    """Return how the server is set: it logs no addresses, and bounds what strangers can cost."""
    return uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, date_header=False, limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=GRACE, h11_max_incomplete_event_size=LONGEST_HEAD, ws="none", http="h11", loop="asyncio",
    )  # fmt: skip


class DashboardServer(uvicorn.Server):
    """A server that lets its viewers go before it ends, so that it need not wait for them."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then everything."""
        app = self.config.app
        assert isinstance(app, FastAPI)
        app.state.stream.close()
        await super().shutdown(sockets)


def run_server(app: FastAPI, listener: socket.socket) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    DashboardServer(configuration(app)).run(sockets=[listener])
