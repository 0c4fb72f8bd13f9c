"""A service in a thread of this process, or in processes of its own, on loopback, for tests that speak HTTP to it."""

from __future__ import annotations

import asyncio
import io
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from newcomer.model import Model
from newcomer.serve.app import Log
from newcomer.serve.auth import Tokens
from newcomer.serve.background import prepare_background
from newcomer.serve.server import listen_as_server, make_server
from newcomer.serve.service import Config, Service


def model_of(actions=12, rank=2, seed=0, *, ids=None, **named):
    """A one-hot model of a few actions with well separated means."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((actions, rank)))[0]
    mean = 1.0 + 0.1 * rng.standard_normal(actions)
    ids = tuple(range(1, actions + 1)) if ids is None else tuple(ids)
    named = {"action_ids": ids, "one_hot": True, "persistence": 0.2, **named}
    return Model(basis, np.ones(actions), mean, 2.0 * basis, 0.5, **named)


def observations(users, each, seed=0):
    """What users who differ along one direction think of the actions of `model_of`, as a batch of observations."""
    rng = np.random.default_rng(seed)
    reward = 3 + np.outer(rng.standard_normal(users), rng.standard_normal(12)) + rng.standard_normal((users, 12))
    shown = np.argsort(rng.random((users, 12)), axis=1)[:, :each]
    return [
        {"user": f"u{user}", "action": one + 1, "reward": float(reward[user, one])}
        for user in range(users)
        for one in shown[user].tolist()
    ]


def feature_model(dim=3, seed=0):
    """A model of features, without a catalogue."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((dim, 1)))[0]
    return Model(basis, np.ones(dim), 0.1 * rng.standard_normal(dim), basis, 0.5)


class Running:
    """A service whose event loop runs in a thread; `call` runs a coroutine there."""

    def __init__(self, store, config=None, model=None, tokens=None, log=None):
        self.service = Service(store, config or Config(random=0.0, control=0.0), model or model_of())
        self.tokens, self.log = tokens, log or Log(stream=io.StringIO())
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def call(self, coroutine, timeout=300.0):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)

    def start(self):
        self.door = listen_as_server("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.door.getsockname()[1]}"
        self.call(self._start())
        return self

    async def _start(self):
        await self.service.open()
        await prepare_background(self.service)
        self.server = make_server(self.service, self.tokens, log=self.log)
        self.server.install_signal_handlers = lambda: None
        config = self.server.config
        config.load()
        self.server.lifespan = config.lifespan_class(config)
        self.serving = self.loop.create_task(self._serve())
        while not self.server.started:
            await asyncio.sleep(0.005)

    async def _serve(self):
        await self.server.startup(sockets=[self.door])
        await self.server.main_loop()
        await self.server.shutdown(sockets=[self.door])

    async def _stop(self):
        self.server.should_exit = True
        await self.serving
        await self.service.close()

    def stop(self):
        self.call(self._stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()
        self.door.close()


@contextmanager
def running(store, config=None, model=None, **named):
    """A running service, stopped at the end."""
    tokens = named.pop("tokens", None)
    tokens = Tokens.parse(tokens) if isinstance(tokens, list) else tokens
    one = Running(store, config, model, tokens=tokens, **named).start()
    try:
        yield one
    finally:
        one.stop()


class Process:
    """`newcomer serve` in a process of its own."""

    def __init__(self, model, *options, port):
        command = [sys.executable, "-m", "newcomer", "serve", str(model), "--port", str(port), *options]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def wait_ready(self, http, seconds=300.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}: {self.process.stderr.read()}")
            with suppress(Exception):  # it does not listen yet
                if http.get(f"{self.url}/readyz").status_code == 200:
                    return self
            time.sleep(0.05)
        raise AssertionError("not ready")

    def kill(self):
        """As a power cut would, for the process."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self.process.stderr.close()

    def end(self):
        """In order; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(300)
        self.process.stderr.close()
        return self.process.returncode


def bytes_of(folder):
    """Whatever the files of a folder hold."""
    return b"".join(path.read_bytes() for path in Path(folder).rglob("*") if path.is_file())


def free_port():
    with listen_as_server("127.0.0.1", 0) as door:
        return door.getsockname()[1]


def curl(http, line, url, folder):
    """Send what a curl line would."""
    words = iter(shlex.split(line)[1:])
    method, content, address = None, None, ""
    for word in words:
        if word == "-X":
            method = next(words)
        elif word in ("-d", "--data-binary"):
            given = next(words)
            content = (folder / given[1:]).read_bytes() if given.startswith("@") else given.encode()
        else:
            address = word.replace("http://127.0.0.1:8321", url)
    return http.request(method or ("GET" if content is None else "POST"), address, content=content)
