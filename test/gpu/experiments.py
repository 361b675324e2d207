"""The experiments. Each takes a Machine and the length of one run in seconds, and returns its results, which lane.py stores.

Names such as N-F1 are those of the papers' headline numbers. Every comparison has two baselines: one pod alone, as in the paper,
and the same number of pods racing with equal rights. Without the second, most of a gain would be one that any concurrency gives.
"""

import ctypes
import os
import statistics
import subprocess
import sys
import time

import machine

INFERENCE = ("convolution", "recurrent", "transformer")  # N-F1, N-F2, N-F3


def serve(m, workload, seconds, sm=100, quota=100, rate=0, **flags):
    return m.shared(m.command("serve", workload, seconds, rate), sm, quota, **flags)


def plain(m, workload, seconds, percent=None, rate=0):
    return m.plain(m.command("serve", workload, seconds, rate), percent)


def alone(program):
    """Runs one program, and returns its result and how long it took to get ready."""
    since = time.monotonic()
    program.start()
    ready = time.monotonic() - since
    return program.result() | {"ready_s": ready}


def at_once(programs):
    """Lets programs begin once all of them are ready, and returns their results."""
    for p in programs:
        p.line()
    for p in programs:
        p.go()
    return [p.result() for p in programs]


def together(programs):
    """Runs programs at the same time, and returns the sum of their rates and the worst of their tail latencies."""
    found = at_once(programs)
    return {"pods": len(found), "rate": sum(f["rate"] for f in found), "p95_ms": max(f["p95_ms"] for f in found)}


def coverage(m, _):
    """Compares the hook's count of launches with that of CUPTI, which the profiler uses. A thread reports its launches with the next one
    that takes the slow path, so the last ones before a pause may be missing: fewer than 64 for each stream, however many there were."""
    program, found = m.shared(m.command("count", "convolution", 200), 50, 100), {}
    for part in ("first", "all"):
        counted, seen, until = program.line(), 0, time.monotonic() + 3
        while time.monotonic() < until:  # the hook reports only from time to time
            seen = max([p["launches"] for r in m.status()["runs"] for v in r["vgpus"] for p in v["processes"] or []] or [0])
            time.sleep(0.05)
        found[part] = {"counted_by_cupti": counted["launches"], "counted_by_hook": seen, "calls": counted.get("calls", {})}
        program.go()
    program.process.stdin.close()
    program.process.wait()
    return found


def overhead(m, _):
    """N-D6: the host's cost of a launch without gshare, as a client of MPS, and on a share; alternating, medians of five. Then the rate
    of a training in the same three ways, with a whole GPU each."""
    count, found = 10000 if m.arguments.dry_run else 100000, {}
    ways = {
        "plain": lambda command: m.plain(command), "mps": lambda command: m.plain(command, 100),
        "share": lambda command: m.shared(command, 100, 100, isolation="mps"),
    }
    for name, what in (("launch_ns", m.command("launches", "", count)), ("training_rate", m.command("serve", "trainer", 4, 0))):
        runs = {way: [] for way in ways}
        for _ in range(5 if name == "launch_ns" else 1):
            for way, start in ways.items():
                runs[way].append(alone(start(what)))
                m.stop_plain_mps()
        figure = "ns_per_launch" if name == "launch_ns" else "rate"
        found[name] = {way: statistics.median(r[figure] for r in r) for way, r in runs.items()}
        found[name + "_ready_s"] = {way: statistics.median(r["ready_s"] for r in r) for way, r in runs.items()}
    found["added_ns"] = found["launch_ns"]["share"] - found["launch_ns"]["mps"]
    found["training_lost_percent"] = 100 * (1 - found["training_rate"]["share"] / found["training_rate"]["mps"])
    return found


def quota(m, seconds):
    """N-F8: by quota, the fraction of the time in which kernels of a greedy program run, with slope and intercept of the line through
    these points. Each request is four kernels of 0.5 ms."""
    points = {q: 0.002 * alone(serve(m, "timer", seconds, quota=q))["rate"] for q in (10, 25, 50, 75)}
    slope = (points[75] - points[25]) / 0.5
    return {"parts": points, "slope": slope, "intercept": points[50] - slope * 0.5,
            "worst_error_points": max(abs(100 * part - q) for q, part in points.items())}


def sm(m, seconds):
    """N-F8, the other axis: the rate by SMs, together with the SMs that MPS gives according to the agent."""
    whole = alone(serve(m, "product", seconds, isolation="mps"))["rate"]
    points = {}
    for part in (12, 25, 50, 75):
        points[part] = alone(serve(m, "product", seconds, sm=part))["rate"] / whole
    return {"whole_rate": whole, "parts": points}


def crowded(m, seconds):
    """What shares deliver while all of their programs are greedy, compared to a program alone: shares of the time on all SMs, and shares
    of SMs side by side. Then the same for shares of time between a program of long kernels and one of short kernels, compared to the
    latter alone."""
    whole = {w: alone(serve(m, w, seconds, isolation="mps"))["rate"] for w in ("timer", "product", "recurrent")}

    def parts(**programs):
        """Runs programs at the same time, given by workload, each with a share."""
        each = [(workload, share) for workload, shares in programs.items() for share in shares]
        found = at_once([serve(m, workload, seconds, **share) for workload, share in each])
        return [f["rate"] / whole[workload] for f, (workload, _) in zip(found, each)]

    sizes = (50, 30, 15)
    long_kernels, short_kernels = parts(timer=[{"quota": 30}], recurrent=[{"quota": 65}])
    return {"whole_rate": whole, "quota": dict(zip(sizes, parts(timer=[{"quota": q} for q in sizes]))),
            "sm": dict(zip(sizes, parts(product=[{"sm": p} for p in sizes]))),
            "mixed": {"long_kernels_of_30": long_kernels, "short_kernels_of_65": short_kernels,
                      "short_kernels_of_65_alone": parts(recurrent=[{"quota": 65}])[0]}}


def packing(m, seconds):
    """N-F1 to N-F5: one to nine pods with limited SMs, compared to one pod, and to the same number of pods that race."""
    counts, found = m.arguments.pods, {}
    for workload in INFERENCE:
        def mps(percent):
            rates = {n: together([plain(m, workload, seconds, percent=percent) for _ in range(n)]) for n in counts}
            m.stop_plain_mps()
            return rates

        one = alone(plain(m, workload, seconds))
        racing = mps(100)
        # nine shares of 12 % of the SMs cannot all be guaranteed: the ninth would wait until another ends
        capped = {n: together([serve(m, workload, seconds, sm=12, mem="2Gi") for _ in range(n)]) for n in counts if n * 12 <= 100}
        # N-F4: from five pods on, shares of 24 % cannot be guaranteed either; both run as they would under MPS alone
        found[workload] = {
            "one_pod": one, "racing": racing, "capped_12": capped, "mps_12": mps(12), "mps_24": mps(24),
            "gain_over_one": {n: c["rate"] / one["rate"] for n, c in capped.items()},
            "gain_over_racing": {n: c["rate"] / racing[n]["rate"] for n, c in capped.items()},
        }
    return found


def isolation(m, seconds):
    """N-F9: a pod alone and beside three greedy ones, with shares of time only, and with shares of SMs and time."""
    def beside(sm_percent, part):
        by_itself = alone(serve(m, "convolution", seconds, sm=sm_percent, quota=part))
        crowd = [serve(m, "recurrent", seconds, sm=12, quota=part, mem="2Gi") for _ in range(3)]
        among = at_once([serve(m, "convolution", seconds, sm=sm_percent, quota=part), *crowd])[0]
        return {"alone": by_itself, "beside": among, "lost_percent": 100 * (1 - among["rate"] / by_itself["rate"])}

    return {"time_only": beside(100, 20), "sm_and_time": beside(24, 40)}


def memory(m, _):
    """How much memory a share of 2 GiB can allocate and sees, and how much the device counts meanwhile, with few SMs and with all. The
    difference is the driver's context, which grows with the SMs."""
    found = {}
    for sms in (10, 100):
        before = m.memory_used()
        program = m.shared(m.command("allocate", "product"), sms, 50, mem="2Gi")
        found[sms] = program.line() | {"device_mib": m.memory_used() - before}
        program.process.stdin.close()
        program.process.wait()
    return found


def pairs(m, seconds):
    """N-D1 to N-D5: an inference and a training on one GPU with elastic shares, compared to each alone, and to MPS with the limits and
    with the requests as percentages, with the same arrivals."""
    found, seconds = {}, 2 * seconds  # at 20 requests per second, the tail should be more than one request
    for workload, rate in (("convolution", 35), ("transformer", 20)):
        exclusive = {"inference": alone(plain(m, workload, seconds, rate=rate)), "training": alone(plain(m, "trainer", seconds))}

        def pair(first, second):
            inference, training = at_once([first, second])
            return {"inference": inference, "training": training}

        elastic = pair(
            serve(m, workload, seconds, sm=30, rate=rate, sm_limit=60, **{"class": "slo"}), serve(m, "trainer", seconds, sm=40, sm_limit=90))
        limit = pair(plain(m, workload, seconds, 60, rate), plain(m, "trainer", seconds, 90))
        request = pair(plain(m, workload, seconds, 30, rate), plain(m, "trainer", seconds, 40))
        m.stop_plain_mps()
        found[workload] = {"exclusive": exclusive, "elastic": elastic, "mps_l": limit, "mps_r": request,
                           "p95_over_exclusive": elastic["inference"]["p95_ms"] / exclusive["inference"]["p95_ms"],
                           "training_kept_percent": 100 * elastic["training"]["rate"] / exclusive["training"]["rate"]}
    # N-D4; the limits on a GPU may add up to 150 %
    two = together([serve(m, "trainer", seconds, sm=30, sm_limit=75) for _ in range(2)])
    found["trainings"] = {"together": two, "of_exclusive_percent": 100 * two["rate"] / alone(plain(m, "trainer", seconds))["rate"]}
    return found


def crash(m, seconds):
    """Kills the agent under load and restarts it. No program may end, and the new agent must list all of them again."""
    pods = [serve(m, "convolution", 600, sm=30, quota=q) for q in (45, 30, 15)]  # killed below, long before their 600 s
    try:
        for p in pods:
            p.start()
        known(m, pods)
        m.kill()
        since = time.monotonic()
        time.sleep(seconds)
        lived = sum(p.alive() for p in pods)
        m.start()
        known(m, pods)
        back = time.monotonic() - since - seconds
        ended = len(pods) - sum(p.alive() for p in pods)
    finally:
        for p in pods:
            p.kill()
    return {"pods": len(pods), "alive_without_agent": lived, "ended": ended, "known_again_s": back}


def known(m, pods):
    """Waits until the agent reports launches for as many runs as there are pods."""
    until = time.monotonic() + 60
    while time.monotonic() < until and all(p.alive() for p in pods):
        if sum(any(p["launches"] for v in r["vgpus"] for p in v["processes"] or []) for r in m.status()["runs"]) >= len(pods):
            return
        time.sleep(0.02)
    raise TimeoutError(f"{sum(p.alive() for p in pods)} of {len(pods)} programs run, the agent reports {m.status()}")


def graphs(m, seconds):
    """Graphs with half of the time. A graph is a single launch, so the hook must account for all of its kernels at once."""
    whole = alone(serve(m, "graphs", seconds, isolation="mps"))
    half = alone(serve(m, "graphs", seconds, quota=50))
    return {"whole": whole, "half": half, "part": half["rate"] / whole["rate"]}


def store(m, _):
    """The memory that FaST-GShare's store takes, and the open questions of docs/store.md: whether programs can import weights, without MPS and as its clients; what a write
    to a read-only mapping does to the program and to others; and how much memory the store and each program take."""
    found = {}
    for name, percent in (("plain", None), ("mps", 100)):
        found[name] = loaded(m, m.folder / f"{name}.sock", percent)
        found[name]["write"] = {how: written(m, m.folder / f"{name}-{how}.sock", percent, how) for how in ("copy", "kernel")}
        m.stop_plain_mps()
    return found


def weights(m, percent, mode, socket=""):
    """Starts a program that gets weights from a store."""
    library = m.arguments.fake.resolve() if m.arguments.dry_run else m.arguments.hook.parent
    return m.plain([sys.executable, machine.HERE / "weights.py", mode, socket, library / "libgshare_store.so"], percent, m.counted)


def start_store(m, socket, percent):
    command = [m.arguments.bin / "gshare-node", "store", "--socket", socket, "--namespace", os.getuid(), "--capacity", "1Gi"]
    server = m.plain(command, percent, m.counted)
    until = time.monotonic() + 60
    while not socket.exists():
        if not server.alive() or time.monotonic() > until:
            server.kill()
            raise machine.Failed("the store is not ready")
        time.sleep(0.02)
    return server


def loaded(m, socket, percent):
    """Lets two programs load weights, and then kills the store and the first program. Memory is the device's, in MiB more than before."""
    before = weights(m, percent, "free").result()["free"]

    def taken():
        return (before - weights(m, percent, "free").result()["free"]) / 2**20

    running = [start_store(m, socket, percent)]
    try:
        found = {"store_mib": taken()}
        for place in ("first", "second"):
            running.append(weights(m, percent, "load", socket))
            found[place] = running[-1].line()
            found[f"with_{place}_mib"] = taken()
        server, first, second = running
        verify = [m.arguments.bin / "gshare-node", "store", "verify", "--socket", socket, "--weights", "sha256:" + found["first"]["digest"]]
        found["verify"] = subprocess.run([str(c) for c in verify], env=m.environment, capture_output=True, text=True, check=False).stderr.strip()
        server.kill()
        found["without_store"], found["without_store_mib"] = first.ask(), taken()
        first.kill()
        found["without_first"] = second.ask()
        second.kill()
        found["left_mib"] = taken()
    finally:
        for p in running:
            p.kill()
    return found


def written(m, socket, percent, how):
    """Lets one program write to its read-only weights while another program has mapped the same weights."""
    running = [start_store(m, socket, percent)]
    try:
        beside = weights(m, percent, "load", socket)
        running.append(beside)
        beside.line()
        code = weights(m, percent, how, socket).result()["code"]
        return {"code": code, "beside": beside.ask()}
    finally:
        for p in running:
            p.kill()


def contexts(m, _):
    """What this driver does other than cuda.h says of contexts, streams and handles, without gshare and on a share: each difference of
    contexts.c, those that cuda.h does not exclude too. Two devices are compared where the share has two. A share has no differences of its
    own: its memory suffices for what the program allocates, and the hook returns the driver's errors."""
    command = m.arguments.fake.resolve() / "contexts"
    ways = {"plain": [command], "share": m.share(50, 100, "1Gi", isolation="mps") + [command]}
    found = {}
    for name, words in ways.items():
        done = subprocess.run([str(w) for w in words], env=m.environment, capture_output=True, text=True, timeout=120, check=False)
        found[name] = {"code": done.returncode, "differences": done.stdout.replace("ok\n", "").splitlines()}
    if found["plain"]["code"]:
        raise machine.Failed(f"the driver differs from cuda.h: {found}")
    if not set(found["share"]["differences"]) <= set(found["plain"]["differences"]) or found["share"]["code"]:
        raise machine.Failed(f"a share differs from the driver: {found}")
    return found


def checkpoint(m, _):
    """Parks a program with 2 GiB through the driver's checkpoint and wakes it: without MPS, as a client of MPS, and on a share. The codes
    are the driver's, with the step that was refused if any; times are the host's, and memory is the device's while it is parked."""
    size = ["hold", "product", 2048]
    ways = {
        "plain": lambda: m.plain(m.command(*size)), "mps": lambda: m.plain(m.command(*size), 100),
        "share": lambda: m.shared(m.command(*size), 50, 100, isolation="mps"),
    }
    found = {}
    for name, start in ways.items():
        before, program = m.memory_used(), start()
        try:
            pid = program.line()["pid"]
            found[name] = {"held_mib": m.memory_used() - before} | parked(m, pid, before)
            if found[name].get("refused") not in ("Restore", "Unlock"):  # otherwise it is still locked and would never answer
                found[name]["unchanged"] = program.ask()["unchanged"]
        finally:
            program.kill()
            m.stop_plain_mps()
    return found


def parked(m, pid, before):
    """Locks a process, checkpoints, restores and unlocks it. Returns how long each step took, up to the first that is refused."""
    cuda = ctypes.CDLL(str(m.libcuda))
    cuda.cuInit(0)
    found, arguments = {}, ctypes.create_string_buffer(256)  # zeros: no timeout, the same GPUs
    for step in ("Lock", "Checkpoint", "Restore", "Unlock"):
        since = time.monotonic()
        code = getattr(cuda, "cuCheckpointProcess" + step)(pid, arguments)
        found[step.lower() + "_ms"] = 1000 * (time.monotonic() - since)
        if step == "Checkpoint":
            found["parked_mib"] = m.memory_used() - before
        if code:
            found |= {"refused": step, "code": code}
            if step == "Checkpoint":
                cuda.cuCheckpointProcessUnlock(pid, arguments)
            break
    return found


ALL = (coverage, overhead, quota, sm, crowded, graphs, packing, isolation, memory, pairs, crash, store, checkpoint, contexts)
