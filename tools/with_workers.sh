#!/usr/bin/env bash
# Runs a command whose stages share worker processes: `with_workers.sh 2 dvc repro`.
#
# The workers belong to a Dask scheduler on the loopback interface and live as long as the command. They load torch,
# Lightning, MLflow and the compiled kernels once; processes that each stage starts itself load them once per stage,
# which takes longer than the work of many a stage. Where the environment chooses a backend, or Dask is not
# installed, the command runs as it is.
set -euo pipefail
workers=$1
shift
if [[ -n ${COSTBENCH_BACKEND:-}${COSTBENCH_SCHEDULER:-}${COSTBENCH_JOBS:-} ]] ||
  ! python -c 'import importlib.util as u, sys; sys.exit(u.find_spec("distributed") is None)'; then
  exec "$@"
fi

folder=$(mktemp -d)
export COSTBENCH_SCHEDULER=$folder/scheduler.json
# Nobody looks at profiles of these workers, taken a hundred times a second, nor at delays of their event loops.
quiet=(env DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL=500ms)
pids=()
stop() {
  # Workers first: they wait for a scheduler that is gone, eight seconds.
  kill "${pids[@]:1}" 2>/dev/null || true
  wait "${pids[@]:1}" 2>/dev/null || true
  kill "${pids[@]:0:1}" 2>/dev/null || true
  wait "${pids[@]:0:1}" 2>/dev/null || true
  rm -rf "$folder"
}
trap stop EXIT
# Timeouts end what is left where this script is killed and cannot clean up.
"${quiet[@]}" python -m distributed.cli.dask_scheduler --host 127.0.0.1 --port 0 --no-dashboard --idle-timeout '2 hours' \
  --scheduler-file "$COSTBENCH_SCHEDULER" >"$folder/log" 2>&1 &
pids+=($!)
for ((number = 0; number < workers; number++)); do
  "${quiet[@]}" python -m distributed.cli.dask_worker --nthreads 1 --memory-limit 0 --no-dashboard --death-timeout 60 \
    --local-directory "$folder" --scheduler-file "$COSTBENCH_SCHEDULER" >"$folder/log.$number" 2>&1 &
  pids+=($!)
done
for ((tries = 0; tries < 600; tries++)); do
  [[ -s $COSTBENCH_SCHEDULER ]] && break
  sleep 0.1
done
[[ -s $COSTBENCH_SCHEDULER ]] || { cat "$folder/log" >&2; exit 1; }
"$@"
