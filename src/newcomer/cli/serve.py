"""`newcomer serve MODEL`: decide for users over HTTP, learn from rewards, and keep what happened."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from newcomer.cli import output
from newcomer.errors import MissingExtra

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_serve_duration(text: str, option: str) -> float:
    """Seconds in `90s`, `15m`, `1h` or `400d`.

    >>> parse_serve_duration("1h", "--wait"), parse_serve_duration("400d", "--keep")
    (3600.0, 34560000.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", text.strip().lower())
    if not found or float(found[1]) <= 0:
        raise typer.BadParameter(f"a duration is a number with s, m, h or d, not '{text}'", param_hint=option)
    return float(found[1]) * UNITS[found[2]]


def parse_serve_share(value: float | None, option: str) -> float | None:
    """A share of users."""
    if value is not None and not 0.0 <= value <= 1.0:
        raise typer.BadParameter(f"a share lies between 0 and 1, not {value:g}", param_hint=option)
    return value


def serve_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that `newcomer fit` or `model.save` wrote.")],
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="sqlite:///FILE (default: beside the model), memory:, or postgresql://..."),
    ] = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="The interface to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port; 0 picks a free one.")] = 8321,
    policy: Annotated[str, typer.Option(metavar="NAME", help="Policy of the treated arm.")] = "PriorUCB",
    random: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Share of new users served at random (0.05).")
    ] = None,
    control: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Share of new users served the population mean (0.05).")
    ] = None,
    incumbent: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Share of new users served the client's baseline (0).")
    ] = None,
    wait: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Wait for a reward this long (1h, 30m), then use --default.")
    ] = None,
    default: Annotated[
        float | None, typer.Option(metavar="REWARD", help="Reward of a shown decision that got none by then.")
    ] = None,
    keep: Annotated[str | None, typer.Option(metavar="DURATION", help="Remove events older than this (400d).")] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Lines `decide TOKEN` or `admin TOKEN`; required beyond loopback."),
    ] = None,
    rate: Annotated[
        float, typer.Option(metavar="N", min=0.0, help="Requests per second and caller; 0: no limit.")
    ] = 0.0,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log every request as a JSON line on stderr.")
    ] = False,
) -> None:
    """Serve MODEL over HTTP: decide for users, learn from their rewards, log every decision with its propensity."""
    if (wait is None) != (default is None):
        raise typer.BadParameter("a default reward needs --wait, and --wait a --default", param_hint="--wait")
    waits = None if wait is None else parse_serve_duration(wait, "--wait")
    keeps = None if keep is None else parse_serve_duration(keep, "--keep")
    shares = [
        parse_serve_share(v, f"--{n}") for v, n in ((random, "random"), (control, "control"), (incumbent, "incumbent"))
    ]
    if sum(share or 0.0 for share in shares) > 1.0 + 1e-9:
        raise typer.BadParameter("shares of arms add up to more than 1", param_hint="--random")
    from newcomer.model import load

    with MissingExtra.unless_found("serve", purpose="services"):
        from newcomer.serve.auth import Tokens
        from newcomer.serve.limits import Limits
        from newcomer.serve.server import check_server_access, run_server, server_event_loop
        from newcomer.serve.service import Config, Service
        from newcomer.serve.stores import store_of

    named = tokens or (Path(os.environ["NEWCOMER_TOKENS"]) if os.environ.get("NEWCOMER_TOKENS") else None)
    known = None if named is None else Tokens.read(named)
    check_server_access(host, known)
    found = load(model)
    url = store or os.environ.get("NEWCOMER_STORE") or f"sqlite:///{model.resolve()}.store"
    config = Config(
        policy=policy,
        random=shares[0],
        control=shares[1],
        incumbent=shares[2],
        wait=waits,
        default=default,
        keep=keeps,
        limits=Limits(rate=rate),
    )
    from newcomer.serve.models import policy_of_model

    policy_of_model(policy, found)
    service = Service(store_of(url), config, found)
    import asyncio

    def tell(host: str, port: int) -> None:
        examples = [str(one) for one in (found.action_ids or ())[:3]]
        _greet(service.store.name, host, port, examples, secured=known is not None)

    output.aside_output_console().print(
        "loading the model and compiling the inner loops (once: about a minute)", soft_wrap=True
    )
    try:
        with asyncio.Runner(loop_factory=server_event_loop) as runner:
            runner.run(run_server(service, known, host=host, port=port, tell=tell, access_log=access_log))
    except (KeyboardInterrupt, SystemExit):  # the signal that uvicorn passes on once everything is drained
        output.aside_output_console().print("stopped; everything that was acknowledged is in the store")


def _greet(store: str, host: str, port: int, actions: list[str], *, secured: bool) -> None:
    """Where it listens, and three lines to try."""
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    token = " -H 'Authorization: Bearer TOKEN'" if secured else ""
    asked = f', "candidates": [{", ".join(_json(one) for one in actions)}]' if actions else ', "features": [[...]]'
    lines = [
        f"newcomer serves {url}, store: {store}",
        "Try, in another terminal:",
        f'  curl{token} {url}/v1/decide -d \'{{"user": "ann"{asked}}}\'',
        f'  curl{token} {url}/v1/reward -d \'{{"decision": "ID", "reward": 1}}\'    (ID: from the first answer)',
        f"  curl{token} {url}/v1/users/ann",
        f"Watch it: {url}   API: {url}/openapi.json   Stop: Ctrl-C",
    ]
    console = output.aside_output_console()
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _json(one: str) -> str:
    return one if one.lstrip("-").isdigit() else f'"{one}"'
