"""gshare profile and gshare serve with a model server: how large a share it needs, and whether replicas follow the load."""

import json
import re
import signal
import socket
import subprocess
import sys
import time

import machine

NAME, OBJECTIVE = "convolution", "50ms"
REQUEST = json.dumps({"inputs": [{"name": "rows", "datatype": "INT64", "shape": [1, 1], "data": [3]}]})
# what takes the place of the model server on the fake driver
PLAYED = ["--name", NAME, "--input", "rows:INT64:1", "--batch", "1=2ms", "--batch", "8=5ms"]


def function(m, **spec):
    """Writes a file with the function and returns its path. JSON is YAML."""
    command = [m.arguments.bin.resolve() / "gshare-model", *PLAYED] if m.arguments.dry_run else [sys.executable, machine.HERE / "server.py", NAME]
    container = {"command": [str(word) for word in command], "readinessProbe": {"httpGet": {"path": "/v2/health/ready"}}}
    spec |= {"slo": {"latency": OBJECTIVE}, "protocol": "OIP", "template": {"spec": {"containers": [container]}}}
    path = m.folder / "function.yaml"
    path.write_text(json.dumps({"apiVersion": "serving.gshare.dev/v1alpha1", "kind": "GPUFunction", "metadata": {"name": NAME}, "spec": spec}))
    return path


def gshare(m, *words):
    return [str(word) for word in (m.arguments.bin / "gshare", *words)]


def profile(m, _):
    """The shares that gshare profile tries for the model server, and what it does on each: all that gshare profile prints, and the trials."""
    path = function(m, resources={"share": {"memory": "4Gi"}})
    command = gshare(m, "profile", path, "--socket", m.socket, "--hook", m.arguments.hook, "--state", m.folder / "state.json",
                     "--max-batch", 8, "--max-trials", 1 if m.arguments.dry_run else 6, "-o", "json")
    done = subprocess.run(command, env=m.environment, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode or not done.stdout:
        raise machine.Failed(f"gshare profile ended with {done.returncode}: {done.stderr}")
    found = json.loads(done.stdout)
    return {"objective": OBJECTIVE, "recommended": found.get("recommended"), "trials": found["trials"]}


def serving(m, seconds):
    """A small load that starts the first replica, and one that rises for ten times as long as one run, on replicas of 12 % of the SMs each."""
    path = function(m, resources={"share": {"sm": 12, "memory": "4Gi"}}, scaling={"requestsPerSecond": 300, "maxReplicas": 6, "window": "5s"}, batching={"maxBatch": 8})
    address, log = f"127.0.0.1:{unused_port()}", m.folder / "serve.log"
    with open(log, "w", encoding="utf-8") as file:
        server = subprocess.Popen(gshare(m, "serve", path, "--socket", m.socket, "--hook", m.arguments.hook, "--address", address),
                                  env=m.environment, stdout=file, stderr=file)
        try:
            wait_until_open(address, server)
            found = {"first_load": load(m, address, 12, "--rate", 20)}
            found["load"] = load(m, address, max(1, 10 * seconds), "--ramp", "5:50" if m.arguments.dry_run else "50:1500")
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(60)
            finally:
                server.kill()
    return found | {"served": summary(log.read_text())}


def summary(log):
    """Returns what gshare serve logs at its end: how many requests were answered in time, and how many replicas were started."""
    end = re.search("msg=stopped .*", log)
    if not end:
        raise machine.Failed(f"gshare serve has not ended as it should: {log}")
    return {quoted or word: json.loads(number) for quoted, word, number in re.findall(r'(?:"([^"]+)"|(\S+))=([\d.]+)', end[0])}


def load(m, address, seconds, *rate):
    url = f"http://{address}/v2/models/{NAME}/infer"
    command = gshare(m, "load", url, "-H", f"Host:{NAME}", "-H", "Content-Type:application/json", "--data", REQUEST,
                     *rate, "--duration", f"{seconds}s", "--slo", OBJECTIVE, "-o", "json")
    done = subprocess.run(command, env=m.environment, capture_output=True, text=True, timeout=120 + 10 * seconds, check=False)
    try:
        found = json.loads(done.stdout)  # gshare load ends with 1 if the objective was missed
    except ValueError:
        raise machine.Failed(f"gshare load ended with {done.returncode}: {done.stderr}") from None
    return {key: value for key, value in found.items() if key not in ("version", "intervals")}


def unused_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until_open(address, server):
    host, port = address.split(":")
    until = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection((host, int(port)), 1).close()
        except OSError:
            if server.poll() is not None or time.monotonic() > until:
                raise machine.Failed("gshare serve does not accept connections") from None
            time.sleep(0.02)


ALL = (profile, serving)
