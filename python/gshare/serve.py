"""Serves a function over HTTP by the Open Inference Protocol, version 2: health, metadata of the model, and infer with JSON."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, Optional, Sequence, Tuple

from . import inference
from .errors import Closed, DeadlineExceeded, Error, NotTransferable, StageLost
from .runner import Runner

MAX_BODY = 64 << 20  # bytes of a request
TIMEOUT_HEADER = "X-Envoy-Expected-Rq-Timeout-Ms"
IDLE = 60  # seconds after which an idle connection is closed


class Server(ThreadingHTTPServer):
    """An HTTP server of one function. timeout is the time limit of each request, in seconds."""

    daemon_threads = True  # idle connections must not delay the exit; finish waits for answers
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: Tuple[str, int], runner: Runner, name: str, inputs: Sequence[str], timeout: Optional[float]) -> None:
        super().__init__(address, _Handler)
        self.runner, self.name, self.inputs, self.limit = runner, name, list(inputs), timeout
        self.lost: Optional[StageLost] = None  # why the function can no longer be served
        self.draining = False
        self.active = 0  # requests in progress; protected by idle
        self.idle = threading.Condition()

    def drain(self) -> None:
        """Makes serve_forever return, and connections close after their next answer. Returns at once; finish waits for the answers."""
        self.draining = True
        threading.Thread(target=self.shutdown, daemon=True).start()

    def finish(self, timeout: float) -> None:
        """Waits until all answers are written, for at most timeout seconds, and closes the server."""
        with self.idle:
            self.idle.wait_for(lambda: self.active == 0, timeout)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = IDLE

    def log_message(self, format: str, *args: Any) -> None:
        """Does not log requests."""

    def do_GET(self) -> None:
        if "Transfer-Encoding" in self.headers or self.headers.get("Content-Length", "0") != "0":
            self.close_connection = True  # the body is not read, and must not be parsed as the next request
        model = f"/v2/models/{self.server.name}"
        if self.path == "/v2/health/live":
            self._answer(200, {"live": True})
        elif self.path in ("/v2/health/ready", model + "/ready"):
            ready = self.server.lost is None and not self.server.draining
            self._answer(200 if ready else 503, {"name": self.server.name, "ready": ready})
        elif self.path == "/v2":
            self._answer(200, {"name": "gshare", "version": "0.1.0", "extensions": []})
        elif self.path == model:
            tensors = [{"name": name, "datatype": "", "shape": [-1]} for name in self.server.inputs]
            self._answer(200, {"name": self.server.name, "platform": "gshare", "inputs": tensors, "outputs": []})
        else:
            self._answer(404, {"error": "not found"})

    def do_POST(self) -> None:
        with self.server.idle:
            self.server.active += 1
        try:
            self._post()
        finally:
            with self.server.idle:
                self.server.active -= 1
                self.server.idle.notify_all()

    def _post(self) -> None:
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            length = -1
        if "Transfer-Encoding" in self.headers:
            length = -1
        if not 0 <= length <= MAX_BODY:
            self.close_connection = True  # the body is not read
            self._answer(411 if length < 0 else 413, {"error": f"want a Content-Length of 0 to {MAX_BODY}"})
            return
        body = self.rfile.read(length)
        if self.path != f"/v2/models/{self.server.name}/infer":
            self._answer(404, {"error": "not found"})
            return
        self._answer(*self._infer(body))

    def _infer(self, body: bytes) -> Tuple[int, Dict[str, Any]]:
        """Runs the function on the body of a request. Returns the HTTP status and the answer."""
        try:
            request = json.loads(body)
            values = inference.inputs(request, self.server.inputs)
        except (ValueError, RecursionError) as e:
            return 400, {"error": f"not JSON: {e}"}
        except NotTransferable as e:
            return 400, {"error": str(e)}
        try:
            result = inference.outputs(self.server.runner(*values, timeout=self._limit()))
        except NotTransferable as e:
            return 500, {"error": str(e)}
        except DeadlineExceeded as e:
            return 504, {"error": str(e)}
        except StageLost as e:
            if self.server.lost is None:
                self.server.lost = e
                self.server.drain()
            return 503, {"error": str(e)}
        except Closed as e:
            return 503, {"error": str(e)}
        except Error as e:
            return 500, {"error": str(e)}
        answer: Dict[str, Any] = {"model_name": self.server.name, "outputs": result}
        if isinstance(request.get("id"), str):
            answer["id"] = request["id"]
        return 200, answer

    def _limit(self) -> Optional[float]:
        """Returns how many seconds the request may take: the smaller of the server's limit and the client's; None if there is neither."""
        text = self.headers.get(TIMEOUT_HEADER, "")
        asked = int(text) / 1000 if text.isascii() and text.isdigit() and len(text) < 10 else None
        limits = [limit for limit in (asked, self.server.limit) if limit is not None]
        return min(limits, default=None)

    def _answer(self, status: int, content: Dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.server.draining:
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
