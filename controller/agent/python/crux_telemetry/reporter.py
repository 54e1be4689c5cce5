"""The reporter: bounded queue, one thread, and whatever leads to Crux."""

import os
import queue
import threading
import time

from . import channels

# What is said and not sent yet; more is dropped.
QUEUE = 1024
# Between two attempts to connect, seconds.
RETRY = 5.0
DEFAULT = "/run/crux/agent.sock"


class Reporter:
    """Says what jobs do, to an agent (path of its socket) or a controller (host:port)."""

    def __init__(self, to=None, retry=RETRY):
        to = to or os.environ.get("CRUX_AGENT_SOCKET") or DEFAULT
        self._open = channels.opener(to)
        self._retry = retry
        self._queue = queue.Queue(QUEUE)
        self._jobs = set()
        self._thread = threading.Thread(target=self._run, name="crux-telemetry", daemon=True)
        self._thread.start()

    def job(self, id, gpus, **known):
        """A job is there: GPUs by host, and what is known of it, as in a jobs document (tenant,
        model, flows or collective, profile, flop_per_iteration, compute_seconds, overlap_from)."""
        job = {"id": id, "gpus": dict(gpus), **known}
        self._jobs.add(id)
        self._say({"job": job})

    def iteration(self, job, seconds, flop=0.0, compute_seconds=0.0, communication_seconds=0.0,
                  bytes=None):
        """An iteration has just ended. bytes: sent by all flows of the job together."""
        said = {
            "job": job,
            "seconds": seconds,
            "flop": flop,
            "compute_seconds": compute_seconds,
            "communication_seconds": communication_seconds,
        }
        if bytes is not None:
            said["bytes"] = bytes
        self._say({"iteration": said})

    def end(self, job):
        """The job has ended."""
        self._jobs.discard(job)
        self._say({"end": job})

    def close(self, patience=2.0):
        """Ends all jobs, sends what waits, and ends."""
        for job in list(self._jobs):
            self.end(job)
        self._say(None)
        self._thread.join(patience)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _say(self, said):
        try:
            self._queue.put_nowait(said)
        except queue.Full:
            pass

    def _run(self):
        # What was announced and has not ended: a new connection begins with that.
        jobs, channel, tried = {}, None, -self._retry
        while (said := self._queue.get()) is not None:
            if channel is None and time.monotonic() - tried >= self._retry:
                tried = time.monotonic()
                channel = self._connected(jobs.values())
            if "job" in said:
                jobs[said["job"]["id"]] = said["job"]
            if "end" in said:
                jobs.pop(said["end"], None)
            if channel is not None and not attempt(channel.say, said):
                attempt(channel.close)
                channel = None
        if channel is not None:
            attempt(channel.close)

    def _connected(self, jobs):
        """A channel that knows these jobs, or none."""
        try:
            channel = self._open()
        except Exception:
            return None
        if all(attempt(channel.say, {"job": job}) for job in jobs):
            return channel
        attempt(channel.close)
        return None


def attempt(what, *arguments):
    """Whether it could be done."""
    try:
        what(*arguments)
    except Exception:
        return False
    return True
