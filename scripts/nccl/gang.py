"""Ranks of a job as processes, and the sockets on which their plugins report."""

import json
import os
import pathlib
import queue
import socket
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
# Several ranks share one GPU, as if each were a host: NCCL refuses that only on one host.
ONE_GPU = {
    "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket",
    "NCCL_NVLS_ENABLE": "0", "NCCL_RAS_ENABLE": "0", "NCCL_MNNVL_ENABLE": "0",
    "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,TUNING",
    "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1",
}
PATIENCE_SECONDS = 150


class Gang:
    """The ranks of one job. `of_rank` gives the program that a rank is started with, and its part
    of the environment."""

    def __init__(self, name, ranks, folder, backend, environment, of_rank):
        self.ranks, self.folder = ranks, folder
        store = folder / f"{name}.store"
        store.unlink(missing_ok=True)
        self.processes, self.answers = [], []
        for rank in range(ranks):
            prefix, own = of_rank(rank)
            log = folder / f"{name}-{rank}.log"
            whole = os.environ | ONE_GPU | environment | own | {
                "RANK": str(rank), "WORLD_SIZE": str(ranks), "GANG_BACKEND": backend,
                "GANG_STORE": str(store), "NCCL_HOSTID": f"{name}-{rank}",
                "NCCL_DEBUG_FILE": str(folder / f"{name}-{rank}.nccl"),
            }
            process = subprocess.Popen(
                [*prefix, sys.executable, str(HERE / "rank.py")], env=whole, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("w"),
            )
            self.processes.append(process)
            self.answers.append(read_lines(process.stdout))

    def send(self, command):
        for process in self.processes:
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()

    def receive(self):
        """An answer of each rank."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        found = []
        for rank, answers in enumerate(self.answers):
            try:
                answer = json.loads(answers.get(timeout=max(0.1, deadline - time.monotonic())))
            except queue.Empty:
                raise SystemExit(f"rank {rank} does not answer: {self.folder}") from None
            if "error" in answer:
                raise SystemExit(f"rank {rank}: {answer['error']}")
            found.append(answer)
        return found

    def ask(self, command):
        self.send(command)
        return self.receive()

    def close(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def read_lines(stream):
    """A queue that a thread fills with the lines of a stream; at its end, an error."""
    lines = queue.Queue()

    def read():
        for line in stream:
            lines.put(line)
        lines.put('{"error": "ended"}')

    threading.Thread(target=read, daemon=True).start()
    return lines


class PluginSocket:
    """Stands where the agent listens, keeps what a rank's plugin reports with when it came, and
    passes it on to the agent."""

    def __init__(self, path, agent=None):
        self.path, self.agent, self.messages = path, agent, []
        path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.read, args=(connection,), daemon=True).start()

    def read(self, connection):
        upstream = None
        if self.agent is not None:
            upstream = socket.socket(socket.AF_UNIX)
            upstream.connect(str(self.agent))
            threading.Thread(target=discard, args=(upstream,), daemon=True).start()
        for line in connection.makefile("rb"):
            message = json.loads(line)["communicator"]
            self.messages.append((time.perf_counter(), message))
            if upstream is not None:
                upstream.sendall(line)


def discard(connection):
    while connection.recv(4096):
        pass


def has_nccl():
    """Whether this machine has a GPU, and PyTorch with NCCL to use it."""
    check = "import torch; raise SystemExit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", check], stderr=subprocess.DEVNULL).returncode == 0
