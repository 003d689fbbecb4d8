"""TpuGraphs' public formats: raw tuning files and npz files, read and written."""
