"""Exercises of p4lang/tutorials with their own `run_exercise.py`, unchanged, on `crux switch`.

    git clone https://github.com/p4lang/tutorials
    git clone https://github.com/p4lang/PI
    /usr/bin/python3 -m venv --system-site-packages TUTORIALS
    TUTORIALS/bin/pip install -r scripts/clients/p4runtime-shell.txt -r scripts/clients/tutorials.txt
    protoc -I PI/proto --python_out=$(echo TUTORIALS/lib/python3.*/site-packages) p4/tmp/p4config.proto
    TUTORIALS/bin/python scripts/check-tutorials.py target/release/crux tutorials

p4lang/PI has the wrapper of programs, which p4runtime_lib sends. Each solution is compiled, its network
started and its switches programmed with its files; then its own send.py and receive.py run in the
hosts. Where simple_switch_grpc is on the path the same runs on it, and what the switches hold and what
hosts receive must be the same, but for checksums and the depths of queues. Needs root, Mininet,
p4c-bm2-ss, ping, net-tools, ethtool and tcpdump. Names of exercises behind the checkout run these alone.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

LIMIT_SECONDS = 120
SWITCH = "simple_switch_grpc"
# The last switch of the exercises is s4, and the first has this port of P4Runtime.
FIRST_PORT, SWITCHES = 50051, 4
# Where each exercise has its topology, and what is typed into Mininet's command line.
RECEIVE = "./receive.py > received.txt 2> received.err &"
TRIPS = {
    "basic": ("pod-topo", ["pingall", "h3 ping -c 2 h1"]),
    "ecn": (".", [f"h2 {RECEIVE}", "sh sleep 3", "h1 ./send.py 10.0.2.2 congested 2"]),
    "mri": (".", [f"h2 {RECEIVE}", "sh sleep 3", "h1 ./send.py 10.0.2.2 traced 2"]),
    "source_routing": (
        ".", [f"h2 {RECEIVE}", "sh sleep 3", "h1 printf '2 3 2 2 1\\n2 1\\nq\\n' | ./send.py 10.0.2.2"]
    ),
}
# Flags of run_exercise.py that a simple_switch_grpc without Thrift and nanomsg does not take.
OPTIONAL = ("--thrift-port", "--nanolog")


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    if sys.argv[1] == "--read":
        pathlib.Path(sys.argv[2]).write_text(held_by_switches())
        return
    crux, checkout, *wanted = sys.argv[1:]
    switches = {"crux switch": f'exec {os.path.abspath(crux)} switch --dialect bmv2 "$@"'}
    if beside := shutil.which(SWITCH):
        flags = subprocess.run([beside, "--help"], capture_output=True, text=True)
        lacks = [flag for flag in OPTIONAL if flag not in flags.stdout + flags.stderr]
        drops = "".join(f"| sed -E 's;{flag} [^ ]+;;'" for flag in lacks)
        switches[SWITCH] = f'exec {beside} $(echo "$*" {drops})'
    for name in wanted or TRIPS:
        found = {}
        for switch, command in switches.items():
            with tempfile.TemporaryDirectory() as folder:
                found[switch] = run_exercise(name, pathlib.Path(folder), checkout, command)
        ours, *theirs = found.values()
        for other in theirs:
            for what in ours:
                if ours[what] != other[what]:
                    message = f"exercise {name}: {what} differs from {SWITCH}"
                    raise SystemExit(f"{message}:\n{ours[what]}\n--\n{other[what]}")
        counts = ", ".join(f"{len(lines)} lines {what}" for what, lines in ours.items())
        print(f"exercise {name} on {' and '.join(found)}: {counts}", flush=True)


def compile_solution(exercise, name):
    (exercise / "build").mkdir()
    files = ["--p4runtime-files", f"build/{name}.p4.p4info.txtpb", "-o", f"build/{name}.json"]
    command = ["p4c-bm2-ss", "--Wdisable", "--p4v", "16", *files, f"solution/{name}.p4"]
    subprocess.run(command, cwd=exercise, check=True)


def run_exercise(name, folder, checkout, command):
    """What the switches held and what was received, without what differs from run to run."""
    shutil.copytree(checkout, folder / "tutorials", ignore=shutil.ignore_patterns(".git"))
    exercise = folder / "tutorials/exercises" / name
    compile_solution(exercise, name)
    program = folder / "bin" / SWITCH
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{command}\n")
    program.chmod(0o755)
    topology, typed = TRIPS[name]
    read = f"sh {sys.executable} {os.path.abspath(__file__)} --read {exercise}/held.txt"
    path = (program.parent, pathlib.Path(sys.executable).parent, os.environ["PATH"])
    done = subprocess.run(
        [sys.executable, "../../utils/run_exercise.py", "-t", f"{topology}/topology.json",
         "-j", f"build/{name}.json", "-b", SWITCH],
        cwd=exercise, input="\n".join([*typed, "sh sleep 2", read, "exit", ""]),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_SECONDS,
        env=os.environ | {"PATH": os.pathsep.join(map(str, path))},
    )
    files = {path.name: path.read_text(errors="replace") for path in exercise.glob("*.txt")}
    # Pings of the exercises without receive.py, and packets of the others; queues are never the same.
    pings = re.findall(r"Results:.*|\d+ packets transmitted, \d+ received", done.stdout)
    packets = [
        line for line in files.get("received.txt", "").splitlines()
        if not re.search("qdepth|chksum", line)
    ]
    is_complete = "got a packet" in packets or any(" 0% dropped" in line for line in pings)
    if done.returncode or "held.txt" not in files or not is_complete:
        logs = "".join(path.read_text() for path in sorted((exercise / "logs").glob("*.log")))
        raise SystemExit(f"{done.stdout}\n{logs}\nexercise {name} fails with: {command}")
    return {"held": files["held.txt"].splitlines(), "received": pings + packets}


def held_by_switches():
    """Every table entry, default action and group of all switches, as P4Runtime reads them."""
    import grpc
    from google.protobuf import text_format
    from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc

    lines = []
    for number in range(SWITCHES):
        client = p4runtime_pb2_grpc.P4RuntimeStub(grpc.insecure_channel(f"127.0.0.1:{FIRST_PORT + number}"))
        request = p4runtime_pb2.ReadRequest(device_id=number)
        request.entities.add().table_entry.table_id = 0
        request.entities.add().table_entry.is_default_action = True
        request.entities.add().packet_replication_engine_entry.multicast_group_entry.multicast_group_id = 0
        try:
            entities = [entity for answer in client.Read(request) for entity in answer.entities]
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
            continue
        texts = (text_format.MessageToString(entity, as_one_line=True) for entity in entities)
        lines += sorted(f"s{number + 1} {text}" for text in texts)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
