"""Reports a training job to a Crux agent or a controller.

A Reporter sends three messages about a job: an announcement, its iterations, and its end. Reporting
never disturbs training: messages that cannot be sent are dropped, a lost connection is retried now
and then, and no method of a Reporter raises after construction.
"""

from .reporter import Reporter

__all__ = ["Reporter"]
