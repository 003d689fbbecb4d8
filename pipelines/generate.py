"""Stage `generate`: see `costbench.experiments.stages.generate`."""

from costbench.experiments.stages import generate
from costbench.experiments.stages.entry import guarded, stage_parser, start_logging

if __name__ == "__main__":
    parser = stage_parser("generate", str(generate.__doc__))
    parser.add_argument("--backend", choices=("loky", "dask"), help="processes here, or a Dask cluster")
    parser.add_argument("--scheduler", help="of Dask: tcp://HOST:PORT, or its scheduler file (.json)")
    parser.add_argument("--jobs", type=int, help="processes of this machine")
    options = parser.parse_args()
    flags = generate.BackendFlags(options.backend, options.scheduler, options.jobs)
    start_logging()
    raise SystemExit(guarded(lambda: generate.run(options.params, flags), "generate"))
