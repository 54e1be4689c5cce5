#!/bin/sh
# PrologSlurmctld (once for a job) or Prolog (on each host) of slurm.conf: records the job that is
# starting. slurmd says how many GPUs the host gives to the job (SLURM_JOB_GPUS) and nothing for a
# job without GPUs; slurmctld does not say, so there a host gives CRUX_GPUS_PER_HOST, else 8.
# An error must not keep a job from running, so the status is always 0.
gpus=$CRUX_GPUS_PER_HOST
if [ -z "$gpus" ] && [ -z "$SLURMD_NODENAME" ]; then
    gpus=8
fi
crux jobs slurm start --spool "${CRUX_SPOOL:-/run/crux/jobs}" ${gpus:+--gpus-per-host "$gpus"} ||
    echo "crux: job ${SLURM_JOB_ID:-?} is not recorded" >&2
exit 0
