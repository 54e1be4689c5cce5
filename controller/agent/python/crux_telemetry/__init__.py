"""Tells a Crux agent, or a controller, of a training job.

A Reporter says three things of a job: that it is there, what an iteration took, that it has ended.
The decision: reporting never disturbs training. What cannot be sent is dropped, a connection that
was lost is tried again now and then, and nothing here raises once a Reporter was made.
"""

from .reporter import Reporter

__all__ = ["Reporter"]
