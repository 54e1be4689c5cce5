"""The controller and the jobs, started beside the network as an operator would."""

import json
import time

from crux_mininet import JobPrograms

from . import checks


class Training:
    """The jobs of a scenario, watched while events happen."""

    def __init__(self, crux, folder, files, scenario):
        self.scenario = scenario
        options = ["--seed", str(scenario.seed)]
        self.programs = JobPrograms(crux, folder, files, options, scenario.queues.host_flags())

    def run(self, network, events, happen, tell=None):
        """Trains, and tells the controller that listens at `tell` of that; gives the lead's result,
        what the processors did, and when events happened."""
        try:
            self.programs.start(network.hosts, self.scenario.iterations, tell)
            return self.watch(events, happen)
        finally:
            self.programs.stop()

    def watch(self, events, happen):
        """Lets events happen at their time until the lead has its result."""
        watch, happened, pending = checks.Watch(), [], list(events)
        began = looked = time.time()
        while self.programs.lead.poll() is None:
            time.sleep(0.05)
            now = time.time()
            if pending and now - began >= pending[0].after_seconds * self.scenario.slower:
                event = pending.pop(0)
                happen(event)
                happened.append((event.name, now))
            if now - looked >= 1:
                watch.look()
                looked = now
        result = self.programs.result()
        if pending:
            raise RuntimeError(f"the jobs ended before: {[event.name for event in pending]}")
        since = result["began_unix_seconds"]
        happened = [{"name": name, "at_seconds": max(at - since, 0.0)} for name, at in happened]
        return result, watch.verdict(), happened


def rehearse(crux, files, scenario, phase, happened):
    """The same phase on the embedded fabric, with its events when they happened here."""
    events = files[0].with_name("events.json")
    events.write_text(json.dumps({"event": embedded(phase.event, happened)}))
    options = ["--seed", str(scenario.seed)]
    programs = JobPrograms(crux, events.parent, files, options, scenario.queues.host_flags())
    is_planned = phase.jobs_known or phase.reported
    options = ["--events", str(events), "--levels", str(scenario.queues.levels)]
    options += [] if is_planned else ["--ecmp"]
    return programs.rehearse(scenario.iterations, *options)


def embedded(events, happened):
    """Events of a scenario as `crux job rehearse` reads them."""
    cable = lambda ends: "-".join(ends.split())
    spelled = {"policy": lambda policy: policy, "link_down": cable, "link_up": cable}
    return [
        {"name": event.name, "after_seconds": at["at_seconds"]}
        | {
            what: spell(getattr(event, what))
            for what, spell in spelled.items()
            if getattr(event, what) is not None
        }
        for event, at in zip(events, happened)
    ]
