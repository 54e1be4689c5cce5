#!/bin/sh
# EpilogSlurmctld or Epilog of slurm.conf: removes the record of the job that has ended.
crux jobs slurm end --spool "${CRUX_SPOOL:-/run/crux/jobs}" ||
    echo "crux: job ${SLURM_JOB_ID:-?} is still recorded" >&2
exit 0
