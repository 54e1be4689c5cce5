#!/usr/bin/env python3
"""The NCCL plugin inside NCCL itself, beside the truth.

Ranks of PyTorch with NCCL share one GPU, each as a host of its own (NCCL_HOSTID), so that they talk
over sockets. In each communicator it compares what the plugins report

* with the payload of every TCP connection as the kernel counts it (TCP_INFO), by sender and peer;
* with what a ring, a tree or an all-to-all of that volume sends in total;
* with the transmit counter of the interface, which has headers and acknowledgements too;
* with the time between iterations by the clock of the process (perf_counter);

checks that no event was lost and that `crux agent` knows the job, and measures iterations a second
of equal jobs with and without the plugin, in turns.

    scripts/check-nccl.py libnccl_profiler_crux.so [--agent crux] [--ranks 4 8] [--folder out]

Prints a table, and keeps reports and NCCL's own lines about profilers in the folder. Status 1 if a
limit is exceeded. Without a GPU or PyTorch nothing is checked, and it says so.

Start CUDA's multi-process service before (nvidia-cuda-mps-control -d): without it, ranks take turns
on the GPU, and an iteration lasts one, two or three times as long by the order of their turns, so
that the cost of the plugin cannot be seen.
"""

import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "nccl"))
import gang  # noqa: E402

MIB = 1 << 20
HOSTS = "h[1-{ranks}]"
FLOP = 1e12
# Largest relative differences. TCP also carries sizes of messages, and what opens a communicator.
LIMITS = {"tcp": 0.01, "formula": 0.01, "interface": 0.02, "period": 0.02}
SIMPLE = {"NCCL_ALGO": None, "NCCL_PROTO": "Simple"}

# Name, operations (kind, bytes, count), environment of NCCL, iterations. LL sends a flag with each
# word, so no formula holds for what NCCL chooses for small operations.
ROUNDS = [
    ("all-reduce, ring", [("all_reduce", 32 * MIB, 1)], SIMPLE | {"NCCL_ALGO": "Ring"}, 70),
    ("all-reduce, tree", [("all_reduce", 32 * MIB, 1)], SIMPLE | {"NCCL_ALGO": "Tree"}, 70),
    ("all-reduce of 64 KiB, LL", [("all_reduce", MIB // 16, 4)],
     {"NCCL_ALGO": None, "NCCL_PROTO": "LL"}, 70),
    ("all-gather", [("all_gather", 32 * MIB, 1)], SIMPLE, 70),
    ("reduce-scatter", [("reduce_scatter", 32 * MIB, 1)], SIMPLE, 70),
    ("all-to-all", [("all_to_all", 32 * MIB, 1)], SIMPLE, 70),
    ("gather, scatter, reduce", [("all_gather", 16 * MIB, 2), ("reduce_scatter", 16 * MIB, 1),
                                 ("all_reduce", 4 * MIB, 1)], SIMPLE, 70),
    ("DDP of a transformer", [], SIMPLE, 70),
]
# With other numbers of ranks than the first.
SHORT = [ROUNDS[0], ROUNDS[1], ROUNDS[5], ROUNDS[7]]
COST = {"kind": "operations", "matmul": 512, "operations": [("all_reduce", MIB, 4)],
        "environment": {"NCCL_ALGO": None, "NCCL_PROTO": None}, "keep": "cost"}
COST_SECONDS = 2.0


def sent_in_total(operations, ranks, parameters):
    """Bytes that all ranks send in an iteration, and before the first one."""
    if not operations:
        # DDP first sends the parameters from rank 0 to all.
        size = 4 * parameters
        return 2 * (ranks - 1) * size, (ranks - 1) * size
    factor = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}
    return sum(factor[kind] * (ranks - 1) * size * n for kind, size, n in operations), 0


def carried_by_tcp(answers):
    """Payload by sending and receiving rank. Each end of a connection is in a rank's answer."""
    rank_of = {tuple(row[:2]): rank for rank, answer in enumerate(answers)
               for row in answer["connections"]}
    carried = {}
    for rank, answer in enumerate(answers):
        for *ends, size in answer["connections"]:
            peer = rank_of.get(tuple(ends[2:]))
            carried[rank, peer] = carried.get((rank, peer), 0) + size
    return carried


def transmitted():
    """Bytes that the loopback interface has sent."""
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split(":")[1].split()[8])
    raise SystemExit("no loopback interface")


def difference(one, other):
    return abs(one - other) / other if other else float(one != other)


class Check:
    """A gang of ranks with the plugin, and what its rounds have shown."""

    def __init__(self, ranks, arguments, folder):
        self.ranks, self.folder = ranks, folder
        self.agent = None
        if arguments.agent:
            self.agent = start_agent(arguments.agent, folder, ranks)
        first = folder / "agent.sock" if self.agent else None
        self.sockets = [
            gang.PluginSocket(folder / f"plugin-{rank}.sock", None if rank else first)
            for rank in range(ranks)
        ]
        environment = {
            "NCCL_SOCKET_IFNAME": "lo", "NCCL_PROFILER_PLUGIN": str(arguments.plugin),
            "CRUX_JOB": "check-nccl", "CRUX_HOSTS": HOSTS.format(ranks=ranks),
            "CRUX_FLOP_PER_ITERATION": str(FLOP), "CRUX_NCCL_REPORT_MS": "200",
        }
        self.gang = gang.Gang(
            "plugin", ranks, folder, "nccl", environment,
            lambda rank: ([], {"CRUX_AGENT_SOCKET": str(self.sockets[rank].path)}),
        )
        self.started = self.gang.receive()

    def run_round(self, name, operations, environment, iterations):
        command = {"kind": "operations" if operations else "ddp", "matmul": 1024,
                   "operations": operations, "environment": environment, "iterations": iterations}
        known = {message["id"] for one in self.sockets for _, message in one.messages}
        before = transmitted()
        answers = self.gang.ask(command)
        carried = transmitted() - before
        messages = [self.await_last(one, known) for one in self.sockets]
        reported = [sum_peers(of_rank) for of_rank in messages]
        tcp = carried_by_tcp(answers)
        total = sum(sum(peers.values()) for peers in reported)
        once, first = sent_in_total(operations, self.ranks, answers[0]["parameters"])
        expected = first + once * iterations
        last = [of_rank[-1][1] for of_rank in messages]
        periods = [compare_period(*pair) for pair in zip(messages, answers)]
        tcp_total = sum(tcp.values())
        by_peer = [
            difference(reported[rank].get(peer, 0), size)
            for (rank, peer), size in tcp.items() if size > 0.01 * tcp_total / self.ranks
        ]
        found = [message["iteration"] for _, message in messages[0] if message.get("iteration")]
        iteration = found[-1] if found else {}
        is_plain = environment["NCCL_PROTO"] == "Simple"
        return {
            "round": name, "ranks": self.ranks, "iterations": iterations, "plugin": total,
            "tcp": tcp_total, "formula": expected, "interface": carried,
            "peers": sum(len(peers) for peers in reported),
            "differs": {
                "tcp": max(by_peer), "interface": difference(total, carried),
                "formula": difference(total, expected) if is_plain else None,
                "period": max(differs for differs, _ in periods),
            },
            "seconds": iteration.get("seconds"), "operations": iteration.get("operations"),
            "together": max(number for _, number in periods),
            "dropped": max(message["dropped_events"] for message in last),
            "hosts": last[0]["host_count"],
        }

    def await_last(self, one, known):
        """What a rank has reported of the communicator that is new, up to its end."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            new = [pair for pair in list(one.messages) if pair[1]["id"] not in known]
            if any(message["is_last"] for _, message in new):
                return new
            time.sleep(0.05)
        raise SystemExit(f"{one.path}: no last report of a communicator ({len(new)} reports)")


def sum_peers(messages):
    """Bytes to each peer, by all reports of a rank."""
    peers = {}
    for _, message in messages:
        for peer in message["peers"]:
            peers[peer["rank"]] = peers.get(peer["rank"], 0) + peer["bytes"]
    return peers


def compare_period(messages, answer):
    """Of the iteration that a rank reports, from the same iterations by its clock, and how many of
    these the plugin takes for one. It leaves out the latest."""
    found = [(at, message["iteration"]) for at, message in messages if message.get("iteration")]
    if not found:
        return 1.0, 0
    at, iteration = found[-1]
    queued = [one for one in answer["queued"] if one < at]
    mean = (queued[-1] - queued[0]) / (len(queued) - 1)
    together = max(1, round(iteration["seconds"] / mean))
    last = len(queued) - 1 - together
    first = max(0, last - iteration["averaged"] * together)
    truth = (queued[last] - queued[first]) / (last - first)
    return difference(iteration["seconds"] / together, truth), together


def start_agent(crux, folder, ranks):
    socket = folder / "agent.sock"
    socket.unlink(missing_ok=True)
    command = [crux, "agent", "--host", "h1", "--socket", socket, "--dry-run", "--no-queue-pairs"]
    agent = subprocess.Popen(
        command, stdout=(folder / f"agent-{ranks}.json").open("w"),
        stderr=(folder / f"agent-{ranks}.log").open("w"),
    )
    deadline = time.monotonic() + 20
    while not socket.exists():
        assert agent.poll() is None and time.monotonic() < deadline, "the agent does not start"
        time.sleep(0.05)
    return agent


def recognized_job(folder, ranks):
    """What the agent would announce: the job, or none."""
    lines = (folder / f"agent-{ranks}.json").read_text().splitlines()
    reports = [json.loads(line) for line in lines]
    windows = [report["window"] for report in reports if "window" in report]
    for report in reports:
        if "announcement" in report:
            counted = sum(len(window.get("iteration_starts", [])) for window in windows)
            return report["announcement"] | {"iterations": counted}
    return None


def iteration_rate(answer):
    """Iterations a second of a round."""
    queued = answer["queued"]
    return (len(queued) - 1) / (queued[-1] - queued[0])


def measure_cost(check, bare, rounds):
    """Iterations a second of both gangs in turns, each first in every other pair."""
    rates = {"plugin": [], "none": []}
    gangs = {"plugin": check.gang, "none": bare}
    for one in gangs.values():
        one.ask(COST | {"iterations": 5})
        rate = iteration_rate(one.ask(COST | {"iterations": 5})[0])
    iterations = min(2000, max(5, round(rate * COST_SECONDS)))
    command = COST | {"iterations": iterations}
    for number in range(rounds):
        for name in list(gangs)[:: 1 if number % 2 == 0 else -1]:
            rates[name].append(iteration_rate(gangs[name].ask(command)[0]))
    ratios = [one / other for one, other in zip(rates["plugin"], rates["none"])]
    return {"iterations": iterations, "rates": rates, "ratios": ratios,
            "ratio": statistics.median(ratios)}


def show_round(row):
    percent = {name: "-" if value is None else f"{value:.3%}"
               for name, value in row["differs"].items()}
    print(f"{row['ranks']:2} {row['round']:25} {row['plugin'] / 1e6:10.2f} MB; differs from "
          f"tcp {percent['tcp']}, formula {percent['formula']}, interface "
          f"{percent['interface']}; iteration {row['seconds'] or 0:.4f} s x{row['together']}, "
          f"differs {percent['period']}; {row['dropped']} dropped", flush=True)


def show_cost(cost):
    low, _, high = statistics.quantiles(cost["ratios"], n=4)
    medians = {name: statistics.median(rates) for name, rates in cost["rates"].items()}
    print(f"iterations a second with the plugin {medians['plugin']:.2f}, without "
          f"{medians['none']:.2f}; of {len(cost['ratios'])} pairs of {cost['iterations']} "
          f"iterations, ratio {cost['ratio']:.4f}, quartiles {low:.4f} to {high:.4f}", flush=True)


def failures_of(row):
    failed = [f"{name} {value:.3%}" for name, value in row["differs"].items()
              if value is not None and value > LIMITS[name]]
    if row["dropped"]:
        failed.append(f"{row['dropped']} dropped events")
    if row["hosts"] != row["ranks"]:
        failed.append(f"{row['hosts']} hosts")
    return [f"{row['ranks']} ranks, {row['round']}: {one}" for one in failed]


def loaded_lines(folder):
    """NCCL's own lines about profilers."""
    lines = (folder / "plugin-0.nccl").read_text(errors="replace").splitlines()
    return [line for line in lines if "PROFILER" in line.upper() or "NCCL version" in line]


def check_ranks(ranks, arguments):
    folder = arguments.folder / f"ranks-{ranks}"
    folder.mkdir(parents=True, exist_ok=True)
    check = Check(ranks, arguments, folder)
    bare = None
    result = {"ranks": ranks, "started": check.started[0], "rounds": []}
    print(f"{ranks} ranks: {json.dumps(check.started[0])}", flush=True)
    failed = []
    try:
        for round_ in ROUNDS if ranks == arguments.ranks[0] else SHORT:
            row = check.run_round(*round_)
            show_round(row)
            result["rounds"].append(row)
            failed += failures_of(row)
        if arguments.pairs and ranks == arguments.ranks[0]:
            bare = gang.Gang("bare", ranks, folder, "nccl", {"NCCL_SOCKET_IFNAME": "lo"},
                             lambda rank: ([], {}))
            bare.receive()
            cost = measure_cost(check, bare, arguments.pairs)
            result["cost"] = cost
            show_cost(cost)
    finally:
        result["nccl"] = loaded_lines(folder)
        print("\n".join(result["nccl"]), flush=True)
        check.gang.close()
        if bare is not None:
            bare.close()
        if check.agent is not None:
            time.sleep(1.5)
            check.agent.terminate()
            check.agent.wait()
            job = recognized_job(folder, ranks)
            result["job"] = job
            print(f"the agent would announce: {json.dumps(job)}", flush=True)
            failed += [] if is_job_right(job, ranks) else [f"{ranks} ranks: not the job: {job}"]
        reports = [one.messages for one in check.sockets]
        (folder / "reports.json").write_text(json.dumps(reports))
        (folder / "result.json").write_text(json.dumps(result, indent=1))
    if not any("Crux" in line for line in result["nccl"]):
        failed.append("NCCL does not say that it loaded the plugin")
    return failed


def is_job_right(job, ranks):
    """Hosts, pattern and bytes are those of the first round."""
    if job is None or job["job"] != "check-nccl":
        return False
    collective = job.get("collective") or {}
    is_known = job["gpus"] == {f"h{number + 1}": 1 for number in range(ranks)}
    size = ROUNDS[0][1][0][1]
    return (is_known and collective.get("kind") == "ring_all_reduce"
            and difference(collective["bytes"], size) < LIMITS["formula"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plugin", type=pathlib.Path)
    parser.add_argument("--agent", help="the program crux, whose agent gets what rank 0 reports")
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--pairs", type=int, default=10, help="of rounds that measure the cost")
    parser.add_argument("--folder", type=pathlib.Path, default=None)
    arguments = parser.parse_args()
    if not gang.has_nccl():
        print("left out: there is no GPU, or no PyTorch with NCCL")
        return
    arguments.folder = arguments.folder or pathlib.Path(tempfile.mkdtemp(prefix="check-nccl-"))
    arguments.plugin = arguments.plugin.resolve()
    # What was found so far is kept.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    failed = []
    for ranks in arguments.ranks:
        failed += check_ranks(ranks, arguments)
    print(f"checked {' and '.join(map(str, arguments.ranks))} ranks on one GPU; {arguments.folder}")
    if failed:
        raise SystemExit("\n".join(["failed:", *failed]))


if __name__ == "__main__":
    main()
