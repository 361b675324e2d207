"""The experiments. Each takes a Machine and the seconds of one run, and gives what it found; lane.py writes that down.

Names such as N-F1 are those of the headline numbers of the papers. Every comparison has two baselines: one pod alone, as the
paper compares, and as many pods with equal rights that race, without which most of a gain is that of any concurrency.
"""

import os
import subprocess
import sys
import time

import machine

INFERENCE = ("convolution", "recurrent", "transformer")  # N-F1, N-F2, N-F3


def serve(m, workload, seconds, sm=100, quota=100, rate=0, **flags):
    return m.shared(m.command("serve", workload, seconds, rate), sm, quota, **flags)


def plain(m, workload, seconds, percent=None, rate=0):
    return m.plain(m.command("serve", workload, seconds, rate), percent)


def together(programs):
    """The sum of the rates and the worst of the tails of programs that run at once."""
    found = [p.result() for p in programs]
    return {"pods": len(found), "rate": sum(f["rate"] for f in found), "p95_ms": max(f["p95_ms"] for f in found)}


def coverage(m, _):
    """The hook's own counter against that of CUPTI, which the profiler uses."""
    program = m.shared(m.command("count", "convolution", 200), 50, 100, keep_input=True)
    counted = program.line()["launches"]
    seen, until = 0, time.monotonic() + 60
    while seen < counted and time.monotonic() < until:  # the hook reports now and then
        seen = max([p["launches"] for r in m.status()["runs"] for v in r["vgpus"] for p in v["processes"] or []] or [0])
        time.sleep(0.05)
    program.process.stdin.close()
    program.process.wait()
    return {"counted_by_cupti": counted, "counted_by_hook": seen}


def overhead(m, _):
    """N-D6: what a launch costs the host, without gshare and with it; the least of three."""
    count = 2000 if m.arguments.dry_run else 50000
    bare = min(m.plain(m.command("launch", "recurrent", count)).result()["ns_per_launch"] for _ in range(3))
    hooked = min(m.shared(m.command("launch", "recurrent", count), 100, 100, isolation="mps").result()["ns_per_launch"] for _ in range(3))
    return {"plain_ns": bare, "hooked_ns": hooked, "added_ns": hooked - bare}


def quota(m, seconds):
    """N-F8: rate by quota, as a part of the rate at the whole window; slope and intercept of the line through them."""
    whole = serve(m, "product", seconds, isolation="mps").result()["rate"]
    points = {q: serve(m, "product", seconds, quota=q).result()["rate"] / whole for q in (25, 50, 75)}
    slope = (points[75] - points[25]) / 0.5
    return {"whole_rate": whole, "parts": points, "slope": slope, "intercept": points[50] - slope * 0.5,
            "worst_error_points": max(abs(100 * part - q) for q, part in points.items())}


def sm(m, seconds):
    """N-F8, the other axis: rate by SMs, with what the agent says MPS gives."""
    whole = serve(m, "product", seconds, isolation="mps").result()["rate"]
    points = {}
    for part in (12, 25, 50, 75):
        program = serve(m, "product", seconds, sm=part)
        points[part] = {"part": program.result()["rate"] / whole}
    return {"whole_rate": whole, "parts": points}


def packing(m, seconds):
    """N-F1 to N-F5: one to nine pods, capped, against one pod, and against as many that race."""
    counts = (1, 8, 9) if m.arguments.dry_run else range(1, 10)
    found = {}
    for workload in INFERENCE:
        def mps(percent):
            rates = {n: together([plain(m, workload, seconds, percent=percent) for _ in range(n)]) for n in counts}
            m.stop_plain_mps()
            return rates

        alone = serve(m, workload, seconds).result()
        racing = mps(100)
        # nine times 12 % of the SMs do not fit under a guarantee: the ninth would wait for another to end
        capped = {n: together([serve(m, workload, seconds, sm=12, mem="2Gi") for _ in range(n)]) for n in counts if n * 12 <= 100}
        # N-F4: from five pods on, 24 % do not fit under a guarantee either; both as MPS alone would have them
        found[workload] = {
            "one_pod": alone, "racing": racing, "capped_12": capped, "mps_12": mps(12), "mps_24": mps(24),
            "gain_over_one": {n: c["rate"] / alone["rate"] for n, c in capped.items()},
            "gain_over_racing": {n: c["rate"] / racing[n]["rate"] for n, c in capped.items()},
        }
    return found


def isolation(m, seconds):
    """N-F9: a pod alone and beside three greedy ones, by time only and by SMs and time."""
    def beside(sm_percent, part):
        alone = serve(m, "convolution", seconds, sm=sm_percent, quota=part).result()
        crowd = [serve(m, "recurrent", 3 * seconds, sm=12, quota=part, mem="2Gi") for _ in range(3)]
        time.sleep(seconds / 2)  # they are to be at work
        among = serve(m, "convolution", seconds, sm=sm_percent, quota=part).result()
        for c in crowd:
            c.result()
        return {"alone": alone, "beside": among, "lost_percent": 100 * (1 - among["rate"] / alone["rate"])}

    return {"time_only": beside(100, 20), "sm_and_time": beside(24, 40)}


def memory(m, _):
    """What a share of 2 GiB can take, and what it sees."""
    return m.shared(m.command("allocate", "product"), 10, 100, mem="2Gi").result()


def pairs(m, seconds):
    """N-D1 to N-D5: an inference and a training on one GPU, elastic, against each alone and against MPS at the limits and at the
    requests, at the same arrivals."""
    found = {}
    for workload, rate in (("convolution", 35), ("transformer", 20)):
        alone = {"inference": plain(m, workload, seconds, rate=rate).result(), "training": plain(m, "trainer", seconds).result()}

        def pair(first, second):
            return {"inference": first.result(), "training": second.result()}

        elastic = pair(
            serve(m, workload, seconds, sm=30, rate=rate, sm_limit=60, **{"class": "slo"}), serve(m, "trainer", seconds, sm=40, sm_limit=90))
        limit = pair(plain(m, workload, seconds, 60, rate), plain(m, "trainer", seconds, 90))
        request = pair(plain(m, workload, seconds, 30, rate), plain(m, "trainer", seconds, 40))
        m.stop_plain_mps()
        found[workload] = {"exclusive": alone, "elastic": elastic, "mps_l": limit, "mps_r": request,
                           "p95_over_exclusive": elastic["inference"]["p95_ms"] / alone["inference"]["p95_ms"],
                           "training_kept_percent": 100 * elastic["training"]["rate"] / alone["training"]["rate"]}
    two = together([serve(m, "trainer", seconds, sm=30, sm_limit=90) for _ in range(2)])  # N-D4
    found["trainings"] = {"together": two, "of_exclusive_percent": 100 * two["rate"] / plain(m, "trainer", seconds).result()["rate"]}
    return found


def crash(m, seconds):
    """Kills the agent under load and starts it again: no program may end, and the new agent has to list them all again."""
    pods = [serve(m, "convolution", 600, sm=30, quota=q) for q in (45, 30, 15)]  # killed below, long before their 600 s
    try:
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
    """Waits until the agent reports launches of as many runs as there are pods."""
    until = time.monotonic() + 60
    while time.monotonic() < until and all(p.alive() for p in pods):
        if sum(any(p["launches"] for v in r["vgpus"] for p in v["processes"] or []) for r in m.status()["runs"]) >= len(pods):
            return
        time.sleep(0.02)
    raise TimeoutError(f"{sum(p.alive() for p in pods)} of {len(pods)} programs run, the agent reports {m.status()}")


def graphs(m, seconds):
    """Graphs under half of the window: one launch each, so that the hook must count them whole."""
    whole = serve(m, "graphs", seconds, isolation="mps").result()
    half = serve(m, "graphs", seconds, quota=50).result()
    return {"whole": whole, "half": half, "part": half["rate"] / whole["rate"]}


def store(m, _):
    """FG-138 and what docs/store.md does not know: whether programs can import weights, without MPS and as its clients, what a write to a
    read-only mapping does to them and to others, and the memory that the store and each program take."""
    found = {}
    for name, percent in (("plain", None), ("mps", 100)):
        found[name] = loaded(m, m.folder / f"{name}.sock", percent)
        found[name]["write"] = written(m, m.folder / f"{name}-write.sock", percent)
        m.stop_plain_mps()
    return found


def weights(m, percent, mode, socket=""):
    """A program that takes weights from a store."""
    library = m.arguments.fake.resolve() if m.arguments.dry_run else m.arguments.hook.parent
    return m.plain([sys.executable, machine.HERE / "weights.py", mode, socket, library / "libgshare_store.so"], percent, True, m.counted)


def start_store(m, socket, percent):
    command = [m.arguments.bin / "gshare-node", "store", "--socket", socket, "--namespace", os.getuid(), "--capacity", "1Gi"]
    server = m.plain(command, percent, False, m.counted)
    until = time.monotonic() + 60
    while not socket.exists():
        if not server.alive() or time.monotonic() > until:
            server.kill()
            raise machine.Failed("the store is not ready")
        time.sleep(0.02)
    return server


def loaded(m, socket, percent):
    """Two programs load weights. Then store and first program are killed. The memory is the device's, in MiB above what it was before."""
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


def written(m, socket, percent):
    """One program writes to its read-only weights, beside another that has them."""
    running = [start_store(m, socket, percent)]
    try:
        beside = weights(m, percent, "load", socket)
        running.append(beside)
        beside.line()
        code = weights(m, percent, "fault", socket).result()["code"]
        return {"code": code, "beside": beside.ask()}
    finally:
        for p in running:
            p.kill()


ALL = (coverage, overhead, quota, sm, graphs, packing, isolation, memory, pairs, crash, store)
