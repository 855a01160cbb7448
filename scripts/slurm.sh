#!/bin/bash
#SBATCH --job-name=inkling
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
# Trains on several nodes under Slurm, with one process per GPU, and resubmits itself when the time limit is reached.
#
#   sbatch scripts/slurm.sh book.txt --out book.run --preset 124m --steps 20000
#   sbatch --nodes=4 scripts/slurm.sh book.txt --out book.run --preset 124m --steps 20000
#
# Two minutes before the limit, Slurm sends SIGUSR1 to the processes. They save and exit with status 138, and this
# script requeues the job, which then resumes the run. On nodes without GPUs, omit --gpus-per-node (#SBATCH
# --gpus-per-node=0). MPI=pmi2 in the environment: for an MPI that needs it (srun --mpi=list shows the available ones).
set -u

train=${TRAIN:-./train}
run='' previous=''
for word in "$@"; do
  case $word in --out=*) run=${word#--out=} ;; esac
  [ "$previous" = --out ] && run=$word
  previous=$word
done
if [ -z "$run" ]; then
  echo "slurm.sh: name the run with --out DIR, so that the next job finds it" >&2
  exit 2
fi

if [ -e "$run/last/state.safetensors" ] || [ -e "$run/prev/state.safetensors" ]; then
  set -- --resume="$run"
fi
# Since 22.05, Slurm does not pass --cpus-per-task on by itself.
srun --mpi="${MPI:-pmix}" --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=1 "$train" "$@"
status=$?
if [ "$status" -eq 138 ]; then # 128 + SIGUSR1
  echo "slurm.sh: the time is up; job ${SLURM_JOB_ID:-} is queued again"
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
