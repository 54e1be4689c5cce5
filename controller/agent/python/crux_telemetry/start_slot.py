"""Start slots: a job begins to send when the controller asks it to.

Jobs of nearly equal periods that fill a link take turns on it. A slot is given in Unix time, so that
the clock of the host is enough to find it.
"""

import math
import time

# A job that has just been given a slot and is late by less than this share of the period does not
# wait for the next one.
FOUND_SHARE = 0.02
# The longest period that a job waits for, seconds: a wrong slot must not stop a job.
MAX_PERIOD = 3600.0


def is_given(slot):
    """Whether there is something to wait for, and by numbers that make sense."""
    try:
        numbers = [slot[f"{name}_seconds"] for name in ("period", "first_send", "most_wait")]
        return all(map(math.isfinite, numbers)) and 0.0 < numbers[0] <= MAX_PERIOD
    except (KeyError, TypeError):
        return False


class SlotKeeper:
    """Waits for the slot of one job, in each iteration before it sends."""

    def __init__(self, now=time.time, sleep=time.sleep):
        self.now, self.sleep = now, sleep
        self.slot, self.found = None, False

    def wait(self, slot):
        """Waits as the slot asks; (seconds waited, seconds after the slot), or None without one.

        For a new slot, at most a period, once; then at most most_wait_seconds, and a job that is
        late does not wait: its turn has passed.
        """
        if not is_given(slot):
            self.slot = None
            return None
        if slot != self.slot:
            self.slot, self.found = slot, False
        period = slot["period_seconds"]
        late = (self.now() - slot["first_send_seconds"]) % period
        early = period - late
        if not self.found:
            self.found = True
            seconds = early if late > FOUND_SHARE * period else 0.0
        else:
            seconds = min(early, slot["most_wait_seconds"]) if early < late else 0.0
        if seconds > 0.0:
            self.sleep(seconds)
        late = (self.now() - slot["first_send_seconds"]) % period
        return seconds, late if late <= period / 2 else late - period
