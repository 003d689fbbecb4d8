"""What models see: TpuGraphs' node, configuration and kernel features, as arrays, and their scaling."""
