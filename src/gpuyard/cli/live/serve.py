"""`gpuyard serve`: the dashboard, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.messages import say
from gpuyard.cli.node.common import Folder
from gpuyard.errors import UsageError
from gpuyard.extras import require

if TYPE_CHECKING:
    from gpuyard.web.guarding import Access
    from gpuyard.web.sources.base import LiveSource

NODE = "node"
SYSTEMS = ("slurm", "lsf")
PORT = 8460
DEFAULT = "sjf/fewest/easy"


def serve(
    source: Annotated[
        list[str] | None,
        typer.Argument(metavar="node|slurm|lsf|FILE…", help="What is shown: the node of this machine unless given.", show_default=False),
    ] = None,
    folder: Folder = None,
    results: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="Where experiments and trainings lie; repeatable; this folder unless given.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="S", help="Which scheduler says what it would do on a batch system; sjf/fewest/easy unless given.")
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen; beyond this machine only with --token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", help="On which port; 0: any that is free.", min=0, max=65535)] = PORT,
    name: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A further name by which browsers reach it; repeatable.")] = None,
    token: Annotated[Path | None, typer.Option(metavar="FILE", help="The token that it asks for; made where there is none.")] = None,
    actions: Annotated[bool, typer.Option("--allow-actions", help="Let jobs be cancelled, held and put first; needs --token.")] = False,
    verbose: options.Verbose = False,
) -> None:  # fmt: skip
    """Show the cluster, results, trainings and comparisons in a browser. Nothing is changed, and no other host is asked.

    It listens on this machine alone unless --host is given. Ctrl-C ends it.
    """
    for package in ("fastapi", "uvicorn"):
        require(package)
    from gpuyard.web.app import Dashboard, create_app, listen, run_server

    access = _access(host, token, name or [], actions=actions)
    app = create_app(Dashboard(_source(source or [NODE], folder, scheduler, acts=actions), access, tuple(results or [Path()])))
    listener = listen(host, port)
    at, number = listener.getsockname()[:2]
    shown = f"[{at}]" if ":" in at else at
    say(f"http://{shown}:{number}/{f'#token={access.token}' if access.token else ''}; Ctrl-C ends it")
    run_server(app, listener)


def _access(host: str, token: Path | None, names: list[str], *, actions: bool) -> Access:
    """Refuse what would let strangers in."""
    from gpuyard.live.service.http import read_token
    from gpuyard.web.guarding import LOOPBACK, Access

    if token is None and (host not in LOOPBACK or actions):
        why = "--allow-actions needs a token" if host in LOOPBACK else f"--host {host}: others could look without a token"
        raise UsageError(why, hint="add --token FILE; it is made where there is none")
    return Access.at(host, read_token(token) if token is not None else "", tuple(each.lower() for each in names), actions=actions)


def _source(given: list[str], folder: Path | None, scheduler: str | None, *, acts: bool) -> LiveSource:
    from gpuyard.policies import parse_scheduler

    if given == [NODE]:
        from gpuyard.web.sources.node import NodeSource

        if scheduler is not None:
            raise UsageError("a node has its own scheduler", hint="gpuyard node start --scheduler S")
        return NodeSource(folder)
    if folder is not None:
        raise UsageError("--folder belongs to a node", hint="gpuyard serve --folder DIR")
    named = [each for each in given if each in (NODE, *SYSTEMS)]
    if named and len(given) > 1:
        other = next(each for each in given if each != named[0]) if len(set(given)) > 1 else named[0]
        raise UsageError(
            f"{named[0]} and {other} cannot be shown together", hint="a dashboard is of one cluster; start another on another --port"
        )
    from gpuyard.web.sources import systems
    from gpuyard.web.sources.site import SiteSource

    asked = None if scheduler == "none" else parse_scheduler(scheduler or DEFAULT)
    if named:
        system = systems.SYSTEMS[named[0]]
        return SiteSource(system.look, asked, system=system if acts else None)
    take = systems.look_of_files([Path(each) for each in given])
    take()  # what cannot be read is told at once
    return SiteSource(take, asked)
