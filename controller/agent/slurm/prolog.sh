#!/bin/sh
# PrologSlurmctld (once for a job) or Prolog (on each host) of slurm.conf: records the job that is
# starting. An error must not keep a job from running, so the status is always 0.
crux jobs slurm start --spool "${CRUX_SPOOL:-/run/crux/jobs}" --gpus-per-host "${CRUX_GPUS_PER_HOST:-8}" ||
    echo "crux: job ${SLURM_JOB_ID:-?} is not recorded" >&2
exit 0
