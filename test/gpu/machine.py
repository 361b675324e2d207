"""One machine: gshare-node --standalone and the programs that run beside it, on a GPU or on the fake driver."""

import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent

# What the fake driver's programs run in place of each workload: the number of launches per request, and the kernel.
PLAYED = {
    "product": (1, "spin_ns500000_sm1000_blocks64"),
    "timer": (4, "spin_ns500000_sm1000_blocks132"),
    "convolution": (8, "spin_ns100000_sm250_blocks64"),
    "transformer": (8, "spin_ns200000_sm500_blocks64"),
    "recurrent": (64, "spin_ns5000_sm60_blocks8"),
    "graphs": (8, "spin_ns100000_sm250_blocks64"),
    "trainer": (16, "spin_ns300000_sm800_blocks64"),
}


class Failed(Exception):
    """Raised if a program does not do what it was started for."""


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("gshare")
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Program:
    """A running workload. It is killed if it prints nothing for limit seconds, since whoever reads its output would wait forever."""

    def __init__(self, command, environment, limit):
        self.limit = limit
        self.process = subprocess.Popen(
            [str(c) for c in command], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def line(self):
        timer = threading.Timer(self.limit, self.process.kill)
        timer.start()
        text = self.process.stdout.readline()
        timer.cancel()
        if not text:
            raise Failed(f"{self.process.args}: it ended with {self.process.wait()} and said nothing")
        return json.loads(text)

    def start(self):
        """Waits until the program is ready, and then lets it begin."""
        self.line()
        self.go()

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def result(self):
        found = self.line()
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise Failed(f"{self.process.args}: it ended with {self.process.returncode}")
        return found

    def ask(self):
        """Sends a line and returns the answer."""
        self.go()
        return self.line()

    def alive(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait()


class Machine:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, pathlib.Path(folder)
        self.socket = self.folder / "run" / "control.sock"
        self.environment = dict(os.environ)
        config = f"apiVersion: gshare.dev/v1alpha1\nkind: NodeConfiguration\ndirectory: {self.folder / 'run'}\n"
        self.libcuda, self.mps = "libcuda.so.1", "nvidia-cuda-mps-control"
        if arguments.dry_run:
            fake = arguments.fake.resolve()
            self.environment["LD_LIBRARY_PATH"] = str(fake)
            self.libcuda = fake / self.libcuda
            self.mps = str((arguments.fake_mps or fake / self.mps).resolve())
            devices = self.folder / "devices.yaml"
            devices.write_text("devices:\n- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 40960}\n")
            config += f"simulatedDevices: {devices}\nsimulatedMPS: {self.mps}\n"
        # the file in which the fake driver counts the memory of all programs, which only some experiments need; the real driver always does
        self.counted = {"FAKE_CUDA_SHARED": str(self.folder / "account")}
        (self.folder / "node.yaml").write_text(config)
        self.log = open(self.folder / "agent.log", "a", encoding="utf-8")
        self.plain_pipe, self.plain_mps = self.folder / "mps", False
        self.agent, self.programs = None, []

    def run(self, command, environment):
        self.programs.append(Program(command, environment, 300 + 4 * self.arguments.seconds))
        return self.programs[-1]

    def end_programs(self):
        """Ends the programs that an experiment has left, since programs of the next one would wait for their shares."""
        for p in self.programs:
            if p.alive():
                p.kill()
        self.programs = []
        self.stop_plain_mps()

    def start(self):
        command = [self.arguments.bin / "gshare-node", "--standalone", "--config", self.folder / "node.yaml"]
        self.agent = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, env=self.environment)
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.status()
            except (OSError, http.client.HTTPException):
                if self.agent.poll() is not None:
                    raise Failed(f"gshare-node ended with {self.agent.returncode} before it answered") from None
                if time.monotonic() > deadline:
                    raise Failed("gshare-node does not answer after 60 s") from None
                time.sleep(0.02)

    def status(self):
        connection = Unix(self.socket)
        connection.request("GET", "/v1/status")
        found = json.load(connection.getresponse())
        connection.close()
        return found

    def memory_used(self):
        """Returns the device's memory in use, in MiB, as the driver counts it; 0 on the fake device, where nvidia-smi cannot be asked."""
        if self.arguments.dry_run:
            return 0
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout)

    def command(self, mode, workload, *more):
        """Returns the command of a workload, in PyTorch or with the fake driver. In mode serve it waits for Program.start."""
        if mode == "launches":
            return [self.arguments.fake.resolve() / mode, *more]
        if not self.arguments.dry_run:
            names = [workload] if mode == "serve" else []
            return [sys.executable, HERE / "workloads.py", mode, *names, *more]
        program = self.arguments.fake.resolve() / "requests"
        launches, kernel = PLAYED[workload]
        if mode == "serve":
            return [program, mode, launches, kernel, *more]
        return [program, mode, *more, *([kernel] if more else [])]

    def share(self, sm, quota, mem="4Gi", **flags):
        """Returns the command that runs another one on a share."""
        more = [word for flag, value in flags.items() for word in ("--" + flag.replace("_", "-"), value)]
        return [self.arguments.bin / "gshare", "run", "--socket", self.socket, "--hook", self.arguments.hook, "--wait",
                "--sm", sm, "--quota", quota, "--mem", mem, *more, "--"]

    def shared(self, command, sm, quota, mem="4Gi", **flags):
        """Runs a command on a share."""
        return self.run([*self.share(sm, quota, mem, **flags), *command], self.environment)

    def plain(self, command, percent=None, more=None):
        """Runs a command without gshare, with additional environment variables; with a percentage, as a client of plain MPS."""
        environment = self.environment | (more or {})
        if percent is not None and self.start_plain_mps():
            environment |= {"CUDA_MPS_PIPE_DIRECTORY": str(self.plain_pipe), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}
        return self.run(command, environment)

    def give_mps(self, words, arguments=(), pipe=None):
        pipe = str(pipe or self.plain_pipe)
        environment = self.environment | {"CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": pipe}
        try:
            return subprocess.run([self.mps, *arguments], input=words, env=environment, text=True, capture_output=True, timeout=10, check=False).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False

    def start_plain_mps(self):
        self.plain_pipe.mkdir(exist_ok=True)
        self.plain_mps = self.plain_mps or self.give_mps("", ["-d"])
        return self.plain_mps

    def stop_plain_mps(self):
        if self.plain_mps:
            self.give_mps("quit -t 5\n")
            self.plain_mps = False

    def kill(self):
        """Kills the agent, as in a crash."""
        self.agent.kill()
        self.agent.wait()

    def stop(self):
        self.end_programs()
        if self.agent and self.agent.poll() is None:
            self.agent.send_signal(signal.SIGTERM)
            try:
                self.agent.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
        for pipe in (self.folder / "run" / "mps").glob("*-*"):  # one for each device or MIG instance: MPS daemons outlive the agent
            self.give_mps("quit -t 5\n", pipe=pipe)
        self.log.close()
