"""TpuGraphs: folders imported, exported and scored, networks trained on them, samples for experiments."""
