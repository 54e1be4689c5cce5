#!/usr/bin/env python3
"""Starts what the compose file starts, without containers, and asks Prometheus every query of the
dashboard: a controller with TLS and tokens as `crux init --service` makes them, its switches, an
agent with jobs that report themselves, and Prometheus with the compose file's configuration.

    scripts/check-monitoring.py target/release/crux

It needs `prometheus` and `promtool` on the path (Debian package prometheus). It fails where a query
or a variable of the dashboard has no data, where a rule of the alerts cannot be evaluated, and where
the alert of a dead switch does not begin. Panels of ports need not have data: these switches have no
ports, and only what Prometheus says of the query is seen.
"""

import contextlib
import json
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
MONITORING = ROOT / "docs/monitoring"
sys.path.insert(0, str(ROOT / "controller/agent/python"))

from crux_telemetry import Reporter  # noqa: E402

# Seconds in which a series must be there.
PATIENCE = 120
# Two of them share the only path, since a forecast is of jobs that contend.
NAMES = ["bert", "gpt"]
JOB = {
    "gpus": {"h1": 4, "h2": 4},
    "tenant": "research",
    "profile": "gpt-24l/A100",
    "collective": {"kind": "ring_all_reduce", "bytes": 6.5e9},
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Stage:
    """Everything that runs, in one folder, until the end of the check."""

    def __init__(self, crux, folder, stack):
        self.crux, self.folder, self.stack = crux, folder, stack
        self.etc = folder / "etc"
        self.controller = f"127.0.0.1:{free_port()}"
        self.prometheus = f"127.0.0.1:{free_port()}"
        self.switches = {}

    def start(self, name, command):
        """Runs a program until the end; what it prints goes to a file."""
        log = self.stack.enter_context(open(self.folder / f"{name}.log", "w"))
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

        def end():
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()

        self.stack.callback(end)
        return process

    def init(self):
        """`crux init --service`, as the first command of the compose file, on free ports."""
        fabric = (ROOT / "scripts/packaging/examples/local.toml").read_text()
        fabric = re.sub(r"127\.0\.0\.1:\d+", lambda _: f"127.0.0.1:{free_port()}", fabric)
        (self.folder / "fabric.toml").write_text(fabric)
        command = [self.crux, "init", "--service", "--folder", self.etc, "--listen", self.controller]
        subprocess.run(command + ["--fabric", self.folder / "fabric.toml"], check=True,
                       stdout=subprocess.DEVNULL)
        config = self.etc / "controller.toml"
        config.write_text(config.read_text().replace("/var/lib/crux", str(self.folder)))

    def start_fabric(self):
        for flags in sorted(self.etc.glob("switch-*.conf")):
            name = flags.stem.removeprefix("switch-")
            line = re.search(r'^FLAGS="(.*)"$', flags.read_text(), re.MULTILINE).group(1)
            self.switches[name] = self.start(name, [self.crux, "switch", *shlex.split(line)])
        files = ["--config", self.etc / "controller.toml", "--fabric", self.etc / "fabric.toml"]
        self.start("controller", [self.crux, "controller", *files])

    def start_jobs(self):
        """Jobs that report an iteration twice a second, through an agent."""
        path = self.folder / "agent.sock"
        options = ["--controller", f"localhost:{self.controller.rsplit(':')[-1]}", "--host", "h1"]
        options += ["--ca", self.etc / "ca.pem", "--token-file", self.etc / "report.token"]
        self.start("agent", [self.crux, "agent", *options, "--socket", path])
        reporter = self.stack.enter_context(Reporter(str(path), retry=0.5))
        for name in NAMES:
            reporter.job(name, **JOB)
        ended = threading.Event()
        self.stack.callback(ended.set)

        def train():
            while not ended.wait(0.5):
                for name in NAMES:
                    reporter.iteration(name, 0.5, 1e15, compute_seconds=0.4, communication_seconds=0.1)

        threading.Thread(target=train, daemon=True).start()

    def start_prometheus(self):
        text = (ROOT / "scripts/packaging/compose/prometheus.yml").read_text()
        for before, after in {
            "/etc/prometheus/alerts.yml": str(MONITORING / "alerts.yml"),
            "/etc/crux": str(self.etc),
            "crux:9300": self.controller,
            "scrape_interval: 5s": "scrape_interval: 1s\n  evaluation_interval: 1s",
        }.items():
            assert before in text, f"{before} is not in the compose file's prometheus.yml"
            text = text.replace(before, after)
        config = self.folder / "prometheus.yml"
        config.write_text(text)
        subprocess.run(["promtool", "check", "config", config], check=True)
        self.start("prometheus", [
            "prometheus", f"--config.file={config}", f"--web.listen-address={self.prometheus}",
            f"--storage.tsdb.path={self.folder / 'tsdb'}"])

    def ask(self, path, **query):
        """An answer of Prometheus; nothing while it does not answer."""
        url = f"http://{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{path} {query}: {error.read().decode()}") from error
        except OSError:
            return None

    def change_policy(self):
        """A change, so that there is one to measure."""
        access = ["--ca", self.etc / "ca.pem", "--token-file", self.etc / "operator.token"]
        command = [self.crux, "policy", "set", "fairness=0.2", "--controller", self.controller]
        subprocess.run([*command, *access], check=True)


def await_data(what, ask, is_there=bool):
    """What `ask` finds, once it is there."""
    end = time.monotonic() + PATIENCE
    while True:
        found = ask()
        if found is not None and is_there(found):
            return found
        if time.monotonic() > end:
            raise SystemExit(f"FAILS: {what}: no data within {PATIENCE} s")
        time.sleep(0.5)


def dashboard_queries(dashboard):
    """Title and expression of each query, with every variable at All."""
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], re.sub(r"\$\w+", ".*", target["expr"])


def check_variables(stage, dashboard):
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            continue
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
        values = await_data(f"variable {variable['name']}", lambda metric=metric, label=label: stage.ask(
            f"label/{label}/values", **{"match[]": metric}))
        print(f"variable {variable['name']}: {', '.join(values)}")
        # The label `job` is the training job's, unless Prometheus has put its own in its place.
        assert variable["name"] != "job" or values == NAMES, values


def check_panels(stage, dashboard):
    for title, query in dashboard_queries(dashboard):
        # The switches here have no ports, so that nothing is counted at any.
        is_there = (lambda found: True) if "gNMI" in title else (lambda found: found["result"])
        found = await_data(f"{title}: {query}", lambda query=query: stage.ask("query", query=query),
                           is_there)
        print(f"{title}: {query}: {len(found['result'])} series")


def check_alerts(stage):
    def rules():
        groups = stage.ask("rules")
        return groups and [rule for group in groups["groups"] for rule in group["rules"]]

    def are_evaluated(found):
        return all(rule["health"] == "ok" for rule in found)

    def is_down_seen(found):
        return any(rule["name"] == "CruxSwitchDown" and rule["state"] != "inactive" for rule in found)

    found = await_data("every alert is evaluated", rules, are_evaluated)
    print(f"{len(found)} alerts are evaluated without an error")
    await_data("alert CruxSwitchDown", rules, is_down_seen)
    print("CruxSwitchDown begins after a switch was killed")


def main():
    missing = [name for name in ("prometheus", "promtool") if not shutil.which(name)]
    if len(sys.argv) != 2 or missing:
        raise SystemExit(f"{__doc__}\nmissing: {', '.join(missing) or 'the program'}")
    crux = str(pathlib.Path(sys.argv[1]).resolve())
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    subprocess.run(["promtool", "check", "rules", MONITORING / "alerts.yml"], check=True)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crux-monitoring-")))
        stage = Stage(crux, folder, stack)
        stage.init()
        stage.start_fabric()
        stage.start_jobs()
        stage.start_prometheus()
        check_variables(stage, dashboard)
        stage.change_policy()
        stage.switches["spine1"].kill()
        check_panels(stage, dashboard)
        check_alerts(stage)
    print("every query of the dashboard has data")


if __name__ == "__main__":
    main()
