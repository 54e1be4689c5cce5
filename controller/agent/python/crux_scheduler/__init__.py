"""Schedules jobs for `crux compare --scheduler-command` and `crux simulate --scheduler-command`.

A scheduler is a function from a Request to a Decision for each job. `run` reads a request from each
line of standard input and writes the reply to a line of standard output, so print messages to
standard error. `crux schema scheduler-request` and `scheduler-reply` describe the lines.
"""

from .exchange import Decision, Flow, Job, Link, Request, run

__all__ = ["Decision", "Flow", "Job", "Link", "Request", "run"]
