"""The reporter: a bounded queue and one thread that sends to an agent or a controller."""

import os
import queue
import threading
import time

from . import channels
from .channels import succeeds

# Messages that wait to be sent; further ones are dropped.
QUEUE_SIZE = 1024
# Seconds between two attempts to connect.
RETRY_SECONDS = 5.0
DEFAULT_SOCKET = "/run/crux/agent.sock"


class Reporter:
    """Reports jobs to an agent (path of its socket) or a controller (host:port)."""

    def __init__(self, to=None, retry=RETRY_SECONDS):
        to = to or os.environ.get("CRUX_AGENT_SOCKET") or DEFAULT_SOCKET
        self._open = channels.channel_opener(to)
        self._retry = retry
        self._queue = queue.Queue(QUEUE_SIZE)
        self._jobs = set()
        self._channel = None
        self._thread = threading.Thread(target=self._run, name="crux-telemetry", daemon=True)
        self._thread.start()

    def job(self, id, gpus, **known):
        """Announces a job: GPUs by host in the order of ranks, and any other fields of a jobs
        document (tenant, model, gpu_indices, one of flows, collective, collectives and
        rank_traffic, profile, flop_per_iteration, compute_seconds, overlap_from, can_wait)."""
        job = {"id": id, "gpus": dict(gpus), **known}
        self._jobs.add(id)
        self._enqueue({"job": job})

    def iteration(self, job, seconds, flop=0.0, compute_seconds=0.0, communication_seconds=0.0,
                  bytes=None, slot_offset_seconds=None):
        """Reports an iteration that has just ended. bytes: sum over all flows of the job.
        slot_offset_seconds: how long after its slot it began to send, if it has one."""
        message = {
            "job": job,
            "seconds": seconds,
            "flop": flop,
            "compute_seconds": compute_seconds,
            "communication_seconds": communication_seconds,
        }
        if bytes is not None:
            message["bytes"] = bytes
        if slot_offset_seconds is not None:
            message["slot_offset_seconds"] = slot_offset_seconds
        self._enqueue({"iteration": message})

    def end(self, job):
        """Reports the end of a job."""
        self._jobs.discard(job)
        self._enqueue({"end": job})

    def feedback(self):
        """What the controller or the agent has replied, the latest 64: job, severity, text. Each
        reply is also logged (logger crux_telemetry) when it arrives."""
        channel = self._channel
        return list(channel.replies.feedback) if channel is not None else []

    def slot(self, job):
        """When a job that was announced with can_wait is to begin to send, as the controller last
        said: a dictionary for start_slot.SlotKeeper; None if it need not wait."""
        channel = self._channel
        return channel.replies.slots.get(job) if channel is not None else None

    def close(self, timeout=2.0):
        """Ends all jobs, sends what is queued, and stops the thread."""
        for job in list(self._jobs):
            self.end(job)
        self._enqueue(None)
        self._thread.join(timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _enqueue(self, message):
        try:
            self._queue.put_nowait(message)
        except queue.Full:
            pass

    def _run(self):
        # Announced jobs that have not ended; a new connection starts with their announcements.
        jobs, channel, tried = {}, None, -self._retry
        while (message := self._queue.get()) is not None:
            if channel is None and time.monotonic() - tried >= self._retry:
                tried = time.monotonic()
                channel = self._connect(jobs.values())
                self._channel = channel or self._channel
            if "job" in message:
                jobs[message["job"]["id"]] = message["job"]
            if "end" in message:
                jobs.pop(message["end"], None)
            if channel is not None and not succeeds(channel.send, message):
                succeeds(channel.close)
                channel = None
        if channel is not None:
            succeeds(channel.close)

    def _connect(self, jobs):
        """A channel on which these jobs are announced, or None."""
        try:
            channel = self._open()
        except Exception:
            return None
        if all(succeeds(channel.send, {"job": job}) for job in jobs):
            return channel
        succeeds(channel.close)
        return None

